#!/usr/bin/env bash
# labels: release-only
# serve_schema.sh — schemathesis against ration serve; see tests/server/schemathesis_test.sh. Skipped where the Python of
# $RATION_PYTHON (or python3) has no schemathesis.
python=$(command -v "${RATION_PYTHON:-python3}") || { echo 'skipped: no Python'; exit 77; }
root=$PWD
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../server")
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

"$python" -c 'import schemathesis' 2> /dev/null || { echo 'skipped: no schemathesis'; exit 77; }
printf '%s' '{% for message in messages %}{{ message.content }} {% endfor %}' > template
start_server --template template --max-tokens 16
RATION_PYTHON=$python expect 0 "$tests/schemathesis_test.sh" "$url"
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# A model for embeddings answers what the other refuses.
start_server "$root/tests/golden/embed/bert"
RATION_PATHS='embed' RATION_PYTHON=$python expect 0 "$tests/schemathesis_test.sh" "$url"
stop_server
equals 'exit code after SIGTERM' 0 "$code"
