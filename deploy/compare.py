"""Compares the objects of the kustomize base with those of the Helm chart: compare.py BASE CHART.

Only what each tool adds by its nature may differ: the base's namespace and the hash in a name, the chart's own labels, the
checksum that replaces pods, the pull policy, and the form (not the values) of the settings.
"""

import re
import sys
import tomllib

import yaml

OWN_LABELS = ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")


def plain(value):
    """The value without what may differ."""
    if isinstance(value, dict):
        return {
            key: tomllib.loads(inner) if key == "settings.toml" else plain(inner)
            for key, inner in value.items()
            if key not in (*OWN_LABELS, "checksum/settings", "imagePullPolicy")
        }
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return re.sub(r"^jbpf-prof-[0-9a-z]{10}$", "jbpf-prof", value) if isinstance(value, str) else value


def objects(path):
    with open(path, encoding="utf-8") as file:
        found = [plain(item) for item in yaml.safe_load_all(file) if item]
    return {item["kind"]: item for item in found if item["kind"] != "Namespace"}


def differences(base, chart, at):
    if isinstance(base, dict) and isinstance(chart, dict):
        for key in sorted(base.keys() | chart.keys()):
            yield from differences(base.get(key), chart.get(key), f"{at}.{key}")
    elif base != chart:
        yield f"{at}: base {base!r}, chart {chart!r}"


base, chart = objects(sys.argv[1]), objects(sys.argv[2])
found = list(differences(base, chart, ""))
if found or set(base) != {"ServiceAccount", "DaemonSet", "ConfigMap"}:
    sys.exit("\n".join(["the kustomize base and the chart differ:", *found]))
print("the chart's defaults are the kustomize base")
