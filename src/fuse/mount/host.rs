//! Where this process runs, as far as it matters for mounting: told apart by what a process can see.
//!
//! `Host::probe` reads the environment and a few small files; all else is pure.

use std::env;
use std::fs;
use std::path::Path;

use rustix::process;

/// The number of CAP_SYS_ADMIN among the capabilities of a process.
pub(super) const SYS_ADMIN: u32 = 21;

/// What this process can see of where it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Names of environment variables that are set and not empty.
    variables: Vec<String>,
    /// Files that are there, of those in `SIGNS`.
    files: Vec<&'static str>,
    /// The kernel's release, such as `6.1.0-28-amd64`.
    kernel: String,
    pub(super) is_root: bool,
    /// Effective capabilities, as a set of bits.
    pub(super) capabilities: u64,
    /// Whether programs of other owners gain no rights (`no_new_privs`).
    pub(super) gains_nothing: bool,
}

/// The kinds of hosts that need different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostKind {
    Machine,
    Docker,
    Podman,
    Kubernetes,
    Apptainer,
    OtherContainer,
    Slurm,
    Wsl1,
    Wsl2,
    /// A notebook on a service on which no user can mount.
    HostedNotebook,
    /// A notebook on a hub, whose administrator can.
    Hub,
}

/// Files whose presence tells a kind of host.
pub(super) const DOCKER_FILE: &str = "/.dockerenv";
pub(super) const PODMAN_FILE: &str = "/run/.containerenv";
pub(super) const KUBERNETES_FILE: &str = "/var/run/secrets/kubernetes.io";
const SIGNS: [&str; 3] = [DOCKER_FILE, PODMAN_FILE, KUBERNETES_FILE];

/// Environment variables that tell a kind of host, in the order in which they count: a notebook may be in a container of
/// Kubernetes, which is one of Docker.
const VARIABLES: [(&str, HostKind); 12] = [
    ("KAGGLE_KERNEL_RUN_TYPE", HostKind::HostedNotebook),
    ("COLAB_RELEASE_TAG", HostKind::HostedNotebook),
    ("BINDER_SERVICE_HOST", HostKind::HostedNotebook),
    ("JUPYTERHUB_SERVICE_PREFIX", HostKind::Hub),
    ("JUPYTERHUB_API_URL", HostKind::Hub),
    ("APPTAINER_CONTAINER", HostKind::Apptainer),
    ("APPTAINER_NAME", HostKind::Apptainer),
    ("SINGULARITY_CONTAINER", HostKind::Apptainer),
    ("SINGULARITY_NAME", HostKind::Apptainer),
    ("KUBERNETES_SERVICE_HOST", HostKind::Kubernetes),
    ("SLURM_JOB_ID", HostKind::Slurm),
    ("SLURM_JOBID", HostKind::Slurm),
];

impl HostKind {
    /// Whether users can usually act as root there.
    pub(super) fn has_root(self) -> bool {
        use HostKind::{Docker, Machine, OtherContainer, Podman, Wsl2};
        matches!(self, Machine | Docker | Podman | OtherContainer | Wsl2)
    }
}

impl Host {
    /// Reads what tells the host.
    pub(super) fn probe() -> Host {
        let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let variables = VARIABLES.iter().map(|(name, _)| *name).chain(["container"]);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Host {
            variables: variables.filter(is_set).map(str::to_string).collect(),
            files: SIGNS
                .into_iter()
                .filter(|path| Path::new(path).exists())
                .collect(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default(),
            is_root: process::geteuid().is_root(),
            capabilities: field(&status, "CapEff:")
                .and_then(|bits| u64::from_str_radix(bits, 16).ok())
                .unwrap_or(u64::MAX),
            gains_nothing: field(&status, "NoNewPrivs:") == Some("1"),
        }
    }

    /// Returns the kind of host that the signs tell.
    pub(super) fn kind(&self) -> HostKind {
        let has = |name: &str| self.variables.iter().any(|set| set == name);
        let by_variable = VARIABLES.iter().find(|(name, _)| has(name));
        let by_variable = by_variable.map(|(_, kind)| *kind);
        match by_variable {
            // A job may run in a container of its own.
            Some(HostKind::Slurm) | None => {}
            Some(kind) => return kind,
        }
        let files = [
            (KUBERNETES_FILE, HostKind::Kubernetes),
            (PODMAN_FILE, HostKind::Podman),
            (DOCKER_FILE, HostKind::Docker),
        ];
        let by_file = files.iter().find(|(path, _)| self.files.contains(path));
        let by_file = by_file.map(|(_, kind)| *kind);
        let by_rest = || match &self.kernel {
            _ if has("container") => HostKind::OtherContainer,
            kernel if kernel.contains("WSL2") || kernel.contains("microsoft-standard") => {
                HostKind::Wsl2
            }
            kernel if kernel.contains("Microsoft") => HostKind::Wsl1,
            _ => HostKind::Machine,
        };
        by_file.or(by_variable).unwrap_or_else(by_rest)
    }

    /// Whether the process has the capability SYS_ADMIN.
    pub(super) fn may_administer(&self) -> bool {
        self.capabilities >> SYS_ADMIN & 1 == 1
    }
}

/// Returns the first word of a line of /proc/self/status.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a host of what can be seen of it; the process is root.
    pub(in crate::fuse::mount) fn host(
        variables: &[&str],
        files: &[&'static str],
        kernel: &str,
    ) -> Host {
        Host {
            variables: variables.iter().map(ToString::to_string).collect(),
            files: files.to_vec(),
            is_root: true,
            kernel: kernel.to_string(),
            ..Host::default()
        }
    }

    /// Makes a host of each sign.
    pub(in crate::fuse::mount) fn hosts() -> Vec<Host> {
        let files = SIGNS.iter().map(|sign| host(&[], &[*sign], ""));
        let variables = VARIABLES.iter().map(|(name, _)| host(&[*name], &[], ""));
        let container = [host(&["container"], &[], "")];
        files.chain(variables).chain(container).collect()
    }

    #[test]
    fn hosts_are_told_apart() {
        let kind = |variables: &[&str], files: &[&'static str], kernel: &str| {
            host(variables, files, kernel).kind()
        };
        let linux = "6.1.0-28-amd64\n";
        assert_eq!(kind(&[], &[], linux), HostKind::Machine);
        assert_eq!(kind(&[], &[DOCKER_FILE], linux), HostKind::Docker);
        assert_eq!(
            kind(&["container"], &[PODMAN_FILE], linux),
            HostKind::Podman
        );
        assert_eq!(kind(&["container"], &[], linux), HostKind::OtherContainer);
        let pod = ["KUBERNETES_SERVICE_HOST"];
        assert_eq!(kind(&pod, &[DOCKER_FILE], linux), HostKind::Kubernetes);
        assert_eq!(kind(&[], &[KUBERNETES_FILE], linux), HostKind::Kubernetes);
        let hub = ["KUBERNETES_SERVICE_HOST", "JUPYTERHUB_SERVICE_PREFIX"];
        assert_eq!(kind(&hub, &[KUBERNETES_FILE], linux), HostKind::Hub);
        let notebook = ["KAGGLE_KERNEL_RUN_TYPE"];
        assert_eq!(
            kind(&notebook, &[DOCKER_FILE], linux),
            HostKind::HostedNotebook
        );
        assert_eq!(kind(&["SLURM_JOB_ID"], &[], linux), HostKind::Slurm);
        let job = ["SLURM_JOB_ID", "APPTAINER_CONTAINER"];
        assert_eq!(kind(&job, &[], linux), HostKind::Apptainer);
        let in_podman = kind(&["SLURM_JOB_ID"], &[PODMAN_FILE], linux);
        assert_eq!(in_podman, HostKind::Podman);
        let wsl = "5.15.167.4-microsoft-standard-WSL2\n";
        assert_eq!(kind(&[], &[], wsl), HostKind::Wsl2);
        assert_eq!(kind(&[], &[DOCKER_FILE], wsl), HostKind::Docker);
        assert_eq!(kind(&[], &[], "4.4.0-19041-Microsoft\n"), HostKind::Wsl1);
    }

    #[test]
    fn this_process_sees_where_it_is() {
        let host = Host::probe();
        assert!(!host.kernel.is_empty());
        let status = "Name:\tzarrfs\nNoNewPrivs:\t1\nCapEff:\t000001ffffffffff\n";
        assert_eq!(field(status, "CapEff:"), Some("000001ffffffffff"));
        assert_eq!(field(status, "NoNewPrivs:"), Some("1"));
    }
}
