# Sourced by vllm-env and verl-env: a virtual environment outside the clone, made once per list of pins.
#
# It lies in a folder named by the hash of the pins and of Python's version, so that every clone with the same pins
# shares it. PYTHON chooses the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON="${PYTHON:-python3}"

# own_env ROOT PINS SENTENCE: run the caller's `install` with BIN, the new Python, unless it was done; print BIN.
own_env() {
    local root="$1" pins="$2" sentence="$3" home
    home="$root/$("$PYTHON" - "$pins" <<'PY'
import hashlib, pathlib, sys
print(hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes() + repr(sys.version_info[:2]).encode()).hexdigest()[:16])
PY
)"
    BIN="$home/bin/python"
    mkdir -p "$root"
    exec 9>"$root/.lock"
    flock 9
    if [ ! -f "$home/READY" ]; then
        echo "$sentence (into $home, once)" >&2
        rm -rf "$home"
        "$PYTHON" -m venv "$home"
        install >&2
        touch "$home/READY"
    fi
    echo "$BIN"
}
