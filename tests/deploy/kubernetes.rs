//! deploy/kubernetes: the resources of the cluster itself. Their fields are spelt out here once more,
//! as the API has them, so that a wrong one is refused without a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_yaml::Value;

use crate::check::Check;
use crate::files::{disk_dir, must, program, root, yaml};

pub const CHECKS: &[Check] = &[
    Check::new("the_daemonset_has_fields_of_the_api_only", fields),
    Check::new("the_daemonset_sees_the_node_and_has_no_rights", sees_the_node),
    Check::new("what_the_daemonset_mounts_is_declared_and_used", mounts),
    Check::new("nothing_asks_the_cluster_for_rights", no_rights),
    Check::new("loadline_accepts_the_configuration_of_the_configmap", configuration),
    Check::new("kustomization_names_every_manifest", kustomization),
    Check::new("kubectl_renders_the_kustomization", renders).needs(&["kubectl"]),
    Check::new("the_published_schemas_of_kubernetes_accept_the_manifests", schemas)
        .needs(&["kubernetes-validate"])
        .slow(),
];

pub const FOLDER: &str = "deploy/kubernetes";
/// Of the API of Kubernetes itself.
const OWN: [&str; 3] = ["namespace.yaml", "configmap.yaml", "daemonset.yaml"];

type Labels = BTreeMap<String, String>;

/// apps/v1 DaemonSet, as far as this one goes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct DaemonSet {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: DaemonSetSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "that a field may be there is the point")]
pub struct Metadata {
    pub name: Option<String>,
    pub namespace: Option<String>,
    #[serde(default)]
    pub labels: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct DaemonSetSpec {
    selector: Selector,
    update_strategy: Value,
    template: Template,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Selector {
    pub match_labels: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    metadata: Metadata,
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct PodSpec {
    automount_service_account_token: bool,
    host_network: bool,
    #[serde(rename = "hostPID")]
    host_pid: bool,
    priority_class_name: String,
    termination_grace_period_seconds: u32,
    tolerations: Vec<Labels>,
    node_selector: Labels,
    security_context: PodSecurity,
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    volumes: Vec<Volume>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodSecurity {
    run_as_non_root: bool,
    run_as_user: u32,
    run_as_group: u32,
    seccomp_profile: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Container {
    name: String,
    image: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    ports: Vec<Port>,
    liveness_probe: Option<Probe>,
    readiness_probe: Option<Probe>,
    security_context: Security,
    resources: Resources,
    volume_mounts: Vec<Mount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Port {
    name: String,
    container_port: u16,
    protocol: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Probe {
    http_get: HttpGet,
    period_seconds: u32,
    timeout_seconds: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpGet {
    path: String,
    port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Security {
    run_as_non_root: Option<bool>,
    run_as_user: Option<u32>,
    run_as_group: Option<u32>,
    allow_privilege_escalation: bool,
    read_only_root_filesystem: bool,
    capabilities: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    requests: Labels,
    limits: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mount {
    name: String,
    mount_path: String,
    #[serde(default)]
    read_only: bool,
    mount_propagation: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Volume {
    name: String,
    config_map: Option<Labels>,
    host_path: Option<HostPath>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPath {
    path: String,
    r#type: String,
}

fn daemonset() -> DaemonSet {
    yaml(&format!("{FOLDER}/daemonset.yaml"))
}

fn fields() {
    let DaemonSet { api_version, kind, metadata, spec } = daemonset();
    assert_eq!((&*api_version, &*kind), ("apps/v1", "DaemonSet"));
    assert_eq!(spec.selector.match_labels, spec.template.metadata.labels);
    assert_eq!(metadata.namespace.as_deref(), Some("loadline"));
    let profile = spec.template.spec.security_context.seccomp_profile;
    assert_eq!(profile["type"], "RuntimeDefault");
}

fn sees_the_node() {
    let pod = daemonset().spec.template.spec;
    assert!(pod.host_pid, "process 1 of a namespace can't be restarted");
    assert!(pod.host_network, "links are those of a network namespace");
    assert!(!pod.automount_service_account_token, "it asks nothing of the cluster");
    assert!(pod.tolerations.iter().any(|t| t.get("operator").is_some_and(|o| o == "Exists")));
    let user = &pod.security_context;
    assert!(user.run_as_non_root && user.run_as_user == 65532 && user.run_as_group == 65532);
    let [loadline] = &pod.containers[..] else { panic!("one container") };
    let Security { allow_privilege_escalation, read_only_root_filesystem, capabilities, .. } =
        &loadline.security_context;
    assert!(!allow_privilege_escalation && *read_only_root_filesystem);
    assert_eq!(capabilities, &[("drop".to_owned(), vec!["ALL".to_owned()])].into());
    assert!(!loadline.resources.limits.contains_key("cpu"), "a throttled worker measures that");
    assert!(loadline.resources.requests.contains_key("memory"));
    let asked = [&loadline.liveness_probe, &loadline.readiness_probe].map(|probe| {
        let probe = probe.as_ref().unwrap();
        assert_eq!(probe.http_get.port, loadline.ports[0].name);
        probe.http_get.path.as_str()
    });
    assert_eq!(asked, ["/-/healthy", "/-/ready"]);
    assert_eq!(loadline.ports[0].container_port, 9847);
}

fn mounts() {
    let pod = daemonset().spec.template.spec;
    let declared: BTreeSet<&str> = pod.volumes.iter().map(|v| v.name.as_str()).collect();
    let containers = || pod.containers.iter().chain(&pod.init_containers);
    let used: BTreeSet<&str> =
        containers().flat_map(|c| &c.volume_mounts).map(|m| m.name.as_str()).collect();
    assert_eq!(declared, used);
    for mount in &pod.containers[0].volume_mounts {
        let volume = pod.volumes.iter().find(|v| v.name == mount.name).unwrap();
        let writes = ["state", "lock"].contains(&&*mount.name);
        assert_ne!(mount.read_only, writes, "{}", mount.name);
        assert_ne!(volume.config_map.is_some(), volume.host_path.is_some(), "{}", mount.name);
        if let Some(HostPath { path, r#type }) = &volume.host_path {
            assert_eq!(r#type == "DirectoryOrCreate", writes, "{path}");
        }
    }
    let root = pod.containers[0].volume_mounts.iter().find(|m| m.name == "root").unwrap();
    assert_eq!(root.mount_propagation.as_deref(), Some("HostToContainer"), "later mounts");
    for argument in &pod.containers[0].args {
        if let Some((_, path)) = argument.strip_prefix("--path.").and_then(|a| a.split_once('=')) {
            let mounted = pod.containers[0].volume_mounts.iter().any(|m| m.mount_path == path);
            assert!(mounted, "{argument}");
        }
    }
}

/// Every manifest and what it is.
pub fn manifests() -> Vec<(String, Value)> {
    let folder = root().join(FOLDER);
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    names.sort();
    let read = |name: String| (name.clone(), yaml(&format!("{FOLDER}/{name}")));
    names.into_iter().map(read).collect()
}

fn no_rights() {
    const KINDS: [&str; 5] =
        ["ConfigMap", "DaemonSet", "Namespace", "PodMonitor", "PrometheusRule"];
    let manifests = manifests();
    let kinds: Vec<&str> = manifests.iter().map(|(_, m)| m["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, KINDS, "no role, no binding, no account");
}

fn configuration() {
    let map: Value = yaml(&format!("{FOLDER}/configmap.yaml"));
    let dir = disk_dir();
    let file = dir.path().join("loadline.yml");
    std::fs::write(&file, map["data"]["loadline.yml"].as_str().unwrap()).unwrap();
    must(
        std::process::Command::new(env!("CARGO_BIN_EXE_loadline"))
            .args(["check", "--config"])
            .arg(&file)
            .env("STATE_DIRECTORY", dir.path()),
    );
}

fn kustomization() {
    let kustomization: Value = yaml(&format!("{FOLDER}/kustomization.yaml"));
    let listed: BTreeSet<&str> = kustomization["resources"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let manifests = manifests();
    assert_eq!(listed, manifests.iter().map(|(name, _)| name.as_str()).collect());
    assert_eq!(kustomization["images"][0]["newTag"], env!("CARGO_PKG_VERSION"));
}

fn renders() {
    let text = must(program("kubectl").args(["kustomize", FOLDER]));
    assert_eq!(text.matches("\nkind: ").count(), manifests().len(), "{text}");
    assert!(text.contains(concat!("image: registry.example/loadline:", env!("CARGO_PKG_VERSION"))));
}

fn schemas() {
    let files = OWN.map(|name| format!("{FOLDER}/{name}"));
    must(program("kubernetes-validate").arg("--strict").args(files));
}
