# On the first machine, then on every other one, as the user that trains:
#   sh nodes.sh                 the head; makes a token, unless there is one, and says where it is
#   scp -p ~/.ray/auth_token NODE:.ray/      without it nobody may join; ~/.ray has to be there
#   sh nodes.sh HEAD:6379       a node
# More options of `ray start` may follow. Where you train: export RAY_AUTH_MODE=token
export RAY_USAGE_STATS_ENABLED=0
export RAY_worker_niceness=0                      # else training gives way to all else there
export RAY_kill_child_processes_on_worker_exit=0  # they end themselves, with what they have started
export RAY_AUTH_MODE=token                        # the token is in ~/.ray/auth_token, on all of them
export RAY_health_check_initial_delay_ms=2000     # a machine that is gone counts as such soon
export RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=2000
export RAY_health_check_failure_threshold=3
case "$1" in
"" | -*)
    (umask 077 && ray get-auth-token --generate > /dev/null) || exit 1
    echo "copy ${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token} to the other machines"
    exec ray start --head --port=6379 "$@"
    ;;
*)
    head="$1"
    shift
    exec ray start --address="$head" --resources='{"XPU": 2}' --labels='rack=r1' "$@"
    ;;
esac
