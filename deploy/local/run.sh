#!/usr/bin/env bash
# The part of `make run` behind the builds: a control plane, the host, the sample, and a look at what appears.
# May be interrupted and run again at any point. Usage: deploy/local/run.sh TARGET
set -euo pipefail
# Bash forgets an interrupt while it waits for a program that ends as if there had been none.
trap 'exit 130' INT
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source deploy/local/lib.sh
target=$(realpath "$1")
listen=${PILOTHOUSE_LISTEN:-127.0.0.1:18080}
webhook_listen=${PILOTHOUSE_WEBHOOK_LISTEN:-127.0.0.1:18443}

command -v kubectl >/dev/null || { echo "kubectl is not on the PATH: install it first" >&2; exit 2; }

take_lock
own=${KUBECONFIG:-}
kubeconfig=$("$target/release/pilothouse-harness" up 9>&-) # what it starts stays, and must not keep the lock
export KUBECONFIG=$kubeconfig
# An API server elsewhere does not reach this machine's loopback.
webhooks=()
[[ -n $own ]] || webhooks=(--webhook-listen "$webhook_listen" --webhook-url "https://$webhook_listen")

wanted="$target/release/pilothouse $(stat -c %Y "$target/release/pilothouse") $kubeconfig"
if pid=$(running) && [[ $(cat "$state/wanted" 2>/dev/null) == "$wanted" ]]; then
  say "found the host, process $pid"
else
  if end_host; then say "ended the host of an earlier build"; fi
  say "starting the host; its log: $state/log"
  echo "$wanted" > "$state/wanted"
  # Away from the terminal's signals. It writes the record itself and holds the lock until then, so that whoever
  # comes after an interruption finds it.
  setsid --fork bash -c 'source "$1"; record_and_become "${@:2}"' bash deploy/local/lib.sh \
    "$target/release/pilothouse" run --plugins "$target/plugins" --apply-crds \
    --kubeconfig "$kubeconfig" --listen "$listen" "${webhooks[@]}" > "$state/log" 2>&1 < /dev/null
  for _ in $(seq 50); do
    if running >/dev/null || [[ -s $state/log ]]; then break; fi
    sleep 0.1
  done
fi

say "waiting until the host is ready"
for attempt in $(seq 600); do
  ready=$(curl -fsS "http://$listen/readyz" 2>/dev/null) && break
  running >/dev/null || { echo "the host ended:" >&2; tail -n 20 "$state/log" >&2; exit 1; }
  if ((attempt == 600)); then
    echo "not ready after 60 s:" >&2
    curl -sS "http://$listen/readyz" >&2 || true
    exit 1
  fi
  sleep 0.1
done

say "kubectl apply -f deploy/samples/postgres-cluster.yaml"
kubectl apply -f deploy/samples/postgres-cluster.yaml
kubectl -n shop wait --for=condition=Ready --timeout=60s pgc/orders-db
say "kubectl -n shop get pgc,statefulset,pod,service,secret,pdb"
kubectl -n shop get pgc,statefulset,pod,service,secret,pdb
[[ -n $own ]] || say "this control plane has no node: the pods' status is written by a stand-in for the kubelet"
cat <<TEXT

It stays up. Point kubectl at it:

    export KUBECONFIG=$kubeconfig

and try:

    kubectl -n shop patch pgc orders-db --type merge -p '{"spec":{"replicas":5}}'
    kubectl -n shop delete service orders-db-rw     # it comes back
    kubectl -n shop get events
    kubectl -n shop delete pgc orders-db
    kubectl apply -f deploy/samples/website.yaml    # stored in v1, and shown in both versions
    kubectl get websites.v1.example.com,websites.v1alpha1.example.com -o yaml
    kubectl patch website shop --type merge -p '{"spec":{"host":"shop.invalid"}}'   # refused by a webhook
    make stop
TEXT
