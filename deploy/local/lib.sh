# Shared by run.sh and stop.sh: where the local host keeps its record, and whether it is alive.
state=${XDG_STATE_HOME:-$HOME/.local/state}/pilothouse/host
record=$state/pid

say() { echo "==> $*"; }

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
