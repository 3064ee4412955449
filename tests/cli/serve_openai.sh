#!/usr/bin/env bash
# serve_openai.sh — OpenAI's Python client, unmodified, against ration serve; see tests/server/openai_test.py. Skipped
# where the Python of $RATION_PYTHON (or python3) has no openai package.
python=$(command -v "${RATION_PYTHON:-python3}") || { echo 'skipped: no Python'; exit 77; }
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../server")
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

"$python" -c 'import openai' 2> /dev/null || { echo 'skipped: no openai package'; exit 77; }
printf '%s' '{% for message in messages %}{{ message.content }} {% endfor %}' > template
start_server --api-key secret --parallel 2 --waiting 1 --template template
PYTHONDONTWRITEBYTECODE=1 expect 0 "$python" "$tests/openai_test.py" "$url" secret
stop_server
equals 'exit code after SIGTERM' 0 "$code"
