#!/bin/sh
# Measure this machine: ceilings, then the MLP step, ours and PyTorch's alternating. TORCH_PYTHON names a Python that
# has torch; without one that half is left out, and said so.
set -eu
build=$1
cd "$(dirname "$0")/.."
mkdir -p build/bench
export CUPOLA_PLUGIN_DIR="$PWD/$build"
"$build/bench/bench" ceilings
[ -s build/bench/mlp.csv ] || awk 'BEGIN { srand(1); for (j = 0; j < 784; j++) printf "x%d,", j; print "label";
    for (i = 0; i < 1280; i++) { for (j = 0; j < 784; j++) printf "%.4f,", rand() * 2 - 1; print int(rand() * 10) } }' >build/bench/mlp.csv
for round in 1 2 3; do
    "$build/cupola" check bench/mlp.yaml --json 2>/dev/null | sed 's/.*"step_seconds":\([0-9.e-]*\).*/{"what":"mlp step, cupola","seconds":\1}/'
    if [ -n "${TORCH_PYTHON:-}" ]; then
        "$TORCH_PYTHON" bench/torch_mlp.py
    fi
done
[ -n "${TORCH_PYTHON:-}" ] || echo "PyTorch left out: set TORCH_PYTHON to a Python that has torch" >&2
