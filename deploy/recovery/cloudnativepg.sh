#!/bin/sh
# Not run in a cluster where it was written: only its arguments are tested, with a stand-in for kubectl.
# RECOVERY_COMMAND for the clusters of deploy/kubernetes: recovers a second Cluster from the object store, which is
# deleted when the standard input closes. Runs where kubectl may create clusters and read secrets in the current
# namespace.
#   cloudnativepg.sh SERVER DATABASE TIME   prints the URL of the recovered server, through a forwarded port
#   cloudnativepg.sh --list SERVER          prints the first and the last moment that can be had
# RECOVERY_STORAGE is the size of its volume (50Gi).
set -eu
refuse() { echo "$1"; exit 1; }
cluster_of() { if [ "$1" = default ]; then echo backoffice-control; else echo "backoffice-$1"; fi; }
if [ "$1" = --list ]; then
  cluster=$(cluster_of "$2")
  first=$(kubectl get objectstore backoffice-wal \
    -o jsonpath="{.status.serverRecoveryWindow.$cluster.firstRecoverabilityPoint}")
  [ -n "$first" ] || refuse "The object store has no backup of $cluster."
  echo "$first $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  exit
fi

cluster=$(cluster_of "$1")
name=recovery-$$-$(date +%s)
exec 3<&0
{ # Cleans up when the standard input closes, also if this script was killed.
  cat <&3 > /dev/null || true
  kubectl delete cluster "$name" --ignore-not-found > /dev/null
} &
kubectl create -f - > /dev/null << END
apiVersion: postgresql.cnpg.io/v1
kind: Cluster
metadata: { name: $name }
spec:
  instances: 1
  imageName: ghcr.io/cloudnative-pg/postgresql:18
  enableSuperuserAccess: true
  storage: { size: ${RECOVERY_STORAGE:-50Gi} }
  bootstrap:
    recovery:
      source: origin
      recoveryTarget: { targetTime: "$3" }
  externalClusters:
    - name: origin
      plugin:
        name: barman-cloud.cloudnative-pg.io
        parameters: { barmanObjectName: backoffice-wal, serverName: $cluster }
END
kubectl wait --for=condition=Ready "cluster/$name" --timeout=24h > /dev/null ||
  refuse "The cluster $name did not recover to $3: kubectl describe cluster says why."
password=$(kubectl get secret "$name-superuser" -o jsonpath='{.data.password}' | base64 -d)
forwarded=$(mktemp)
kubectl port-forward "service/$name-rw" :5432 > "$forwarded" 2>&1 3<&- &
until port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\).*/\1/p' "$forwarded") && [ -n "$port" ]; do
  kill -0 $! || refuse "The port of $name could not be forwarded: $(tail -n 1 "$forwarded")"
  sleep 0.1
done
rm "$forwarded"
echo "postgresql://postgres:$password@127.0.0.1:$port/postgres"
cat <&3 > /dev/null || true
kill $!
