"""The configuration files of the node's daemons, as text."""

from __future__ import annotations

from kube.settings import Addresses, Folders

PAUSE_IMAGE = "localhost/penstock-pause:1"
COREDNS_IMAGE = "localhost/penstock-coredns:1"


def containerd(folders: Folders) -> str:
    """containerd 1.6. restrict_oom_score_adj: where root lacks CAP_SYS_RESOURCE, no sandbox could start without it."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{folders.state}/containerd"
state = "{folders.run}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{folders.containerd}"
[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
disable_tcp_service = true
stream_server_address = "127.0.0.1"
[{cri}.containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
Root = "{folders.run}/runc"
[{cri}.cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folders.state}/cni"
"""


def cni(folders: Folders, at: Addresses) -> str:
    """A bridge with addresses from the pod range; hairpin lets a pod reach itself by its Service."""
    return f"""\
{{"cniVersion": "1.0.0", "name": "penstock", "plugins": [
  {{"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {{"type": "host-local", "dataDir": "{folders.state}/ipam",
            "ranges": [[{{"subnet": "{at.node_pods}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"""


def kubelet(folders: Folders, at: Addresses) -> str:
    """failCgroupV1: this release still works with cgroup version 1, but by default refuses it."""
    pki = folders.state / "pki"
    return f"""\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {at.node}
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {pki}/ca.crt}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {pki}/kubelet.crt
tlsPrivateKeyFile: {pki}/kubelet.key
containerRuntimeEndpoint: unix://{folders.containerd}
cgroupDriver: cgroupfs
cgroupRoot: /{folders.cgroup}
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: ["{at.dns}"]
resolvConf: {folders.state}/resolv.conf
podLogsDir: {folders.state}/podlogs
volumePluginDir: {folders.state}/volume-plugins
serializeImagePulls: false
enforceNodeAllocatable: [pods]
evictionHard: {{memory.available: 200Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
"""


def kube_proxy(folders: Folders, at: Addresses) -> str:
    """minSyncPeriod: with the default of a second, a pod that is just ready is refused for as long.

    conntrack: zeros leave those settings alone; they belong to the whole machine.
    """
    return f"""\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {{kubeconfig: {folders.state}/pki/proxy.kubeconfig}}
hostnameOverride: {folders.node}
clusterCIDR: {at.pods}
conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
nftables: {{minSyncPeriod: 100ms}}
"""
