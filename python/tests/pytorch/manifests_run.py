"""Checks manifests of Kubernetes, in an environment that has kubernetes-validate. argv: the lcache program, and the files.

Each resource must be valid, and lcache must understand the commands and variables of its containers. Prints a line for each container with a setting.
"""

import os
import subprocess
import sys

import kubernetes_validate
import yaml


def main():
    program, *files = sys.argv[1:]
    for path in files:
        with open(path) as f:
            resources = list(yaml.safe_load_all(f))
        for resource in resources:
            kubernetes_validate.validate(resource, "1.31", strict=True)
            pod = resource.get("spec", {}).get("template", {}).get("spec", {})
            for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
                check(program, container, pod)


def check(program, container, pod):
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts <= {volume["name"] for volume in pod["volumes"]}, mounts
    variables = {one["name"]: one.get("value", "127.0.0.1").replace("$(POD_IP)", "127.0.0.1") for one in container["env"]}
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    for name in ("LCACHE_CLUSTER_KEY", "LCACHE_CACHE"):
        assert name not in variables or any(variables[name].startswith(path) for path in paths), variables[name]
    arguments = container["args"] if container["command"] == ["lcache"] else ["serve", "--cache", "/nvme/train"]
    env = {**os.environ, **variables, "AWS_EC2_METADATA_DISABLED": "true"}
    for command in [arguments, container.get("readinessProbe", {}).get("exec", {}).get("command", ["lcache", "--version"])[1:]]:
        done = subprocess.run([program, *command], env=env, capture_output=True, text=True, timeout=60)
        # There is no such cache here, or no such bucket. Something that lcache does not know would be an error of usage, or a warning.
        assert done.returncode != 2 and "LC014" not in done.stderr and "is not known" not in done.stderr, done.stderr
        assert done.returncode == 0 or "lcache" in done.stderr, done.stderr
    print(f"{container['name']}: {' '.join(variables)}")


if __name__ == "__main__":
    main()
