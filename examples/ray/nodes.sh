# On the first machine, then on every other one, as the user that trains:
#   sh nodes.sh                 the head
#   sh nodes.sh HEAD:6379       a node
export RAY_USAGE_STATS_ENABLED=0
export RAY_worker_niceness=0                      # else training gives way to all else there
export RAY_kill_child_processes_on_worker_exit=0  # they end themselves, with what they have started
export RAY_AUTH_MODE=token                        # the token is in ~/.ray/auth_token, on all of them
export RAY_health_check_initial_delay_ms=2000     # a machine that is gone counts as such soon
export RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=2000
export RAY_health_check_failure_threshold=3
if [ -z "$1" ]; then
    ray start --head --port=6379
else
    ray start --address="$1" --resources='{"XPU": 2}' --labels='rack=r1'
fi
