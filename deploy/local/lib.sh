# Shared by run.sh and stop.sh: where the local host keeps its record, and whether it is alive.
state=${XDG_STATE_HOME:-$HOME/.local/state}/pilothouse/host
record=$state/pid

say() { echo "==> $*"; }

# One run or stop at a time, and none while a host is between its start and its record. Ends with this process and
# those that it starts.
take_lock() {
  mkdir -p "$state"
  exec 9> "$state/lock"
  flock --timeout 120 9 || { echo "another run or stop is under way: $state/lock is held" >&2; exit 1; }
  # A stop removes the directory while it holds the lock.
  [[ $state/lock -ef /proc/self/fd/9 ]] || take_lock
}

# Start time of a process in clock ticks; with the pid it names one process for ever.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '{ print $20 }'; }

# Prints the pid of the host that run.sh started, if that very process still runs.
running() {
  local pid start
  [[ -f $record ]] || return 1
  read -r pid start < "$record" || return 1
  [[ -n $start && $(started "$pid") == "$start" ]] || return 1
  echo "$pid"
}

# Becomes the host: same process, so the record stays true.
record_and_become() {
  echo "$$ $(started $$)" > "$record"
  exec 9>&-
  exec "$@"
}

end_host() {
  local pid
  pid=$(running) || { rm -f "$record"; return 1; }
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 300); do
    running >/dev/null || break
    sleep 0.1
  done
  if running >/dev/null; then kill -KILL "$pid"; fi
  rm -f "$record"
}
