#!/usr/bin/env bash
# packaging/kubernetes: each folder is put together by kustomize and held against the schemas that a cluster has: Kubernetes' own (kubernetes_validate
# for the Python of $RATION_PYTHON) and, for JobSet and MPIJob, the operators' CRDs in $RATION_CRDS (jobset.yaml, mpijob.yaml).
packaging=$(realpath "$(dirname "$0")/../../packaging")
python=${RATION_PYTHON:-python3} crds=${RATION_CRDS:-} # common.bash forgets them
source "$(dirname "$0")/common.bash"

# ---- what can be checked without any tool ----------------------------------------------

for name in $(sed -n 's/.*name: \(ration_[a-z_]*\).*/\1/p' "$packaging/kubernetes/serve/autoscale.yaml"); do
    says "$packaging/kubernetes/metrics/adapter.yaml" "$name{"
done
for flavour in "$packaging"/flavours/*.sh; do sh -n "$flavour" || fail "$flavour is no shell script"; done

# The autoscaler's gauges are ones that the server has.
"$ration" serve --port 0 --budget 256MiB --ctx 128 2> log &
server=$!
cleanups+=("kill $server 2> /dev/null")
wait_for() { for _ in $(seq 600); do "$@" > /dev/null 2>&1 && return; sleep 0.1; kill -0 $server 2> /dev/null || fail 'the server ended'; done; fail "never: $*"; }
wait_for grep -q 'http://' log
port=$(sed -n 's,.*http://[^:]*:\([0-9]*\).*,\1,p' log | head -1)
wait_for curl -sf "http://127.0.0.1:$port/health/ready"
curl -s "http://127.0.0.1:$port/metrics" > metrics
for name in $(sed -n 's/.*name: \(ration_[a-z_]*\).*/\1/p' "$packaging/kubernetes/serve/autoscale.yaml"); do
    grep -q "^$name[ {]" metrics || fail "/metrics has no $name"
done
for path in $(grep -oE 'path: /(health|metrics)[a-z/]*' "$packaging/kubernetes/serve/ration.yaml" | sed 's/path: //' | sort -u); do
    equals "GET $path" 200 "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port$path")"
done

# Flags in the jobs are flags of the program.
expect 0 "$ration" train --help
cp out help
for flag in $(grep -hE 'args:|value: \[train' "$packaging"/kubernetes/train-*/*.yaml | grep -oE -- '--[a-z-]+' | sort -u) --budget --resume; do
    says help "$flag"
done

# ---- kustomize and the schemas ---------------------------------------------------------

kustomize=
if command -v kustomize > /dev/null; then
    kustomize='kustomize build'
elif command -v kubectl > /dev/null; then
    kustomize='kubectl kustomize'
fi
[ -n "$kustomize" ] || { leave_out 'no kustomize or kubectl'; exit 0; }
"$python" -c 'import yaml, jsonschema, kubernetes_validate' 2> /dev/null || { leave_out "no kubernetes_validate for $python"; exit 0; }

cat > check.py << 'END'
import sys, yaml, jsonschema, kubernetes_validate as check

def closed(schema):  # what the API server prunes is a mistake here
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"): return {"type": ["integer", "string"]}
        out = {k: closed(v) for k, v in schema.items()}
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"): out.setdefault("additionalProperties", False)
        return out
    return [closed(s) for s in schema] if isinstance(schema, list) else schema

crds = {}
for path in sys.argv[2:]:
    for crd in yaml.safe_load_all(open(path)):
        if not crd or crd.get("kind") != "CustomResourceDefinition": continue
        for version in crd["spec"]["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            crds[crd["spec"]["group"] + "/" + version["name"], crd["spec"]["names"]["kind"]] = schema
for part in yaml.safe_load_all(open(sys.argv[1])):
    kind = part["apiVersion"], part["kind"]
    if "." in kind[0] and not kind[0].split("/")[0].endswith("k8s.io") or kind[1] == "JobSet":
        if kind not in crds: print("no schema:", kind[1]); continue
        jsonschema.Draft7Validator(crds[kind]).validate(part)
    else: check.validate(part, check.latest_version(), strict=True)
    print("fits:", kind[1])
END
for folder in "$packaging"/kubernetes/*/kustomization.yaml; do
    folder=$(dirname "$folder")
    $kustomize "$folder" > "$(basename "$folder").yaml" 2> err || fail "kustomize $folder"
    expect 0 "$python" check.py "$(basename "$folder").yaml" $([ -z "$crds" ] || ls "$crds"/*.yaml)
    cat out >> fits
done
for kind in Deployment Service HorizontalPodAutoscaler PodDisruptionBudget; do says fits "fits: $kind"; done

# The flavours differ in the image, the device and its resource, in nothing else.
for flavour in cuda neuron; do
    diff serve.yaml "serve-$flavour.yaml" | grep '^[<>]' | grep -vE "image: ration|cpu: |memory: |nvidia.com/gpu|aws.amazon.com/neuron|RATION_DEVICE|RATION_PROGRAMS|$flavour|programs|sizeLimit|emptyDir|failureThreshold" &&
        fail "serve-$flavour differs from serve in something else"
done
says serve-cuda.yaml 'image: ration-cuda:latest' 'nvidia.com/gpu: "1"' 'value: cuda:0,cpu'
says serve-neuron.yaml 'image: ration-neuron:latest' 'aws.amazon.com/neuron: "1"'

# A manifest with a mistake does not pass.
sed 's/averageValue:/averageValues:/' serve.yaml > wrong.yaml
! "$python" check.py wrong.yaml > /dev/null 2>&1 || fail 'a wrong autoscaler passes'
if [ -n "$crds" ]; then
    for kind in JobSet MPIJob; do says fits "fits: $kind"; done
    sed 's/slotsPerWorker/slotPerWorker/' train-mpijob.yaml > wrong.yaml
    ! "$python" check.py wrong.yaml "$crds"/*.yaml > /dev/null 2>&1 || fail 'a wrong MPIJob passes'
    sed 's/maxRestarts/maxRestart/' train-jobset.yaml > wrong.yaml
    ! "$python" check.py wrong.yaml "$crds"/*.yaml > /dev/null 2>&1 || fail 'a wrong JobSet passes'
else
    leave_out 'no CRDs of JobSet and MPIJob in $RATION_CRDS'
fi
exit 0
