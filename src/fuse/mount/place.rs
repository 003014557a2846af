//! What to do where this process cannot mount: told by where it runs, which is told by what it can see.
//!
//! `Facts::probe` reads the environment and a few small files; all else is pure. The advice is one clause that follows the
//! fault, such as `/dev/fuse: not there; ...`, and names what somebody has to type or write, and who. Where nobody can help,
//! it names the commands that read a store without a mount.

use std::env;
use std::fs;
use std::path::Path;

use rustix::process;

/// The number of CAP_SYS_ADMIN among the capabilities of a process.
const SYS_ADMIN: u32 = 21;

/// What stands between this process and a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// /dev/fuse is not there, or no driver is behind it.
    NoDevice,
    /// /dev/fuse may not be opened.
    DeviceDenied,
    /// The kernel refuses the mount to root.
    RootDenied,
    /// fusermount3 is not installed.
    NoProgram,
    /// fusermount3 is not let do what it does.
    ProgramDenied,
}

/// What this process can see of where it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Names of environment variables that are set and not empty.
    variables: Vec<String>,
    /// Files that are there, of those in `SIGNS`.
    files: Vec<&'static str>,
    /// The kernel's release, such as `6.1.0-28-amd64`.
    kernel: String,
    is_root: bool,
    /// Effective capabilities, as a set of bits.
    capabilities: u64,
    /// Whether programs of other owners gain no rights (`no_new_privs`).
    gains_nothing: bool,
}

/// Where a process runs, as far as it matters for mounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostKind {
    Machine,
    Docker,
    Podman,
    Kubernetes,
    Apptainer,
    OtherContainer,
    Slurm,
    Wsl1,
    Wsl2,
    /// A notebook on a service that lets nobody mount.
    HostedNotebook,
    /// A notebook on a hub, whose administrator can.
    Hub,
}

/// Files whose presence tells a place.
const DOCKER_FILE: &str = "/.dockerenv";
const PODMAN_FILE: &str = "/run/.containerenv";
const KUBERNETES_FILE: &str = "/var/run/secrets/kubernetes.io";
const SIGNS: [&str; 3] = [DOCKER_FILE, PODMAN_FILE, KUBERNETES_FILE];

/// Environment variables that tell a place, in the order in which they count: a notebook may be in a container of
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
    /// Whether who is told can usually act as root there.
    fn has_root(self) -> bool {
        use HostKind::{Docker, Machine, OtherContainer, Podman, Wsl2};
        matches!(self, Machine | Docker | Podman | OtherContainer | Wsl2)
    }
}

impl Facts {
    /// Looks around.
    pub(super) fn probe() -> Facts {
        let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let variables = VARIABLES.iter().map(|(name, _)| *name).chain(["container"]);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Facts {
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

    fn place(&self) -> HostKind {
        let has = |name: &str| self.variables.iter().any(|set| set == name);
        let by_variable = VARIABLES.iter().find(|(name, _)| has(name));
        let by_variable = by_variable.map(|(_, place)| *place);
        match by_variable {
            // A job may run in a container of its own.
            Some(HostKind::Slurm) | None => {}
            Some(place) => return place,
        }
        let files = [
            (KUBERNETES_FILE, HostKind::Kubernetes),
            (PODMAN_FILE, HostKind::Podman),
            (DOCKER_FILE, HostKind::Docker),
        ];
        let by_file = files.iter().find(|(path, _)| self.files.contains(path));
        let by_file = by_file.map(|(_, place)| *place);
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

    fn may_administer(&self) -> bool {
        self.capabilities >> SYS_ADMIN & 1 == 1
    }
}

/// Returns the first word of a line of /proc/self/status.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

/// The commands that need no mount.
macro_rules! without_mount {
    () => {
        "'zarrfs cp', 'cat' and 'info' read a store without a mount"
    };
}

/// Returns what to do about an obstacle, in one clause.
pub(super) fn advice(obstacle: Obstacle, facts: &Facts) -> &'static str {
    let place = facts.place();
    match (obstacle, place) {
        (_, HostKind::HostedNotebook) => {
            concat!(
                "this notebook's service lets nobody mount; ",
                without_mount!()
            )
        }
        (_, HostKind::Hub) => concat!(
            "on a JupyterHub its administrator has to allow mounts (KubeSpawner: 'privileged = True' and \
             'allow_privilege_escalation = True'; DockerSpawner: devices and cap_add); ",
            without_mount!()
        ),
        (_, HostKind::Wsl1) => {
            "WSL 1 has no FUSE; 'wsl --set-version DISTRIBUTION 2' in Windows makes it WSL 2"
        }
        (Obstacle::NoProgram, _) => no_program(place),
        (Obstacle::DeviceDenied, _) if !facts.is_root && place.has_root() => {
            "root has to let users open it: 'chmod 666 /dev/fuse'"
        }
        (Obstacle::ProgramDenied, _) if facts.gains_nothing => gains_nothing(place),
        (Obstacle::RootDenied, HostKind::Machine) if facts.may_administer() => {
            "root here may mount, but something forbids it: look for AppArmor or SELinux in 'dmesg'"
        }
        (obstacle, place) => of_place(obstacle, place),
    }
}

/// What to do where fusermount3 is missing, which every user but root needs.
fn no_program(place: HostKind) -> &'static str {
    match place {
        HostKind::Slurm => concat!(
            "the cluster's administrators have to install fuse3 on the nodes; until then \
             'unshare --map-root-user --mount' starts a shell that can mount for itself, and ",
            without_mount!()
        ),
        HostKind::Docker | HostKind::Podman | HostKind::Kubernetes | HostKind::OtherContainer => {
            "install the package fuse3 in the image, or run as root there"
        }
        HostKind::Apptainer => APPTAINER,
        _ => "only root mounts without it: install the package fuse3",
    }
}

/// What to do where fusermount3 starts without the rights of its owner.
fn gains_nothing(place: HostKind) -> &'static str {
    match place {
        HostKind::Docker | HostKind::Podman => {
            "fusermount3 gains no rights here: start the container without '--security-opt no-new-privileges', or mount as root"
        }
        HostKind::Kubernetes => {
            "fusermount3 gains no rights here: the container needs 'securityContext: {allowPrivilegeEscalation: true}', or mount \
             as root"
        }
        HostKind::Apptainer => APPTAINER,
        _ => {
            "fusermount3 gains no rights here, since no_new_privs is set: mount as root, or outside of the sandbox"
        }
    }
}

const APPTAINER: &str =
    "have Apptainer mount: apptainer exec --fusemount 'container:zarrfs mount -f STORE DIR' IMAGE";

/// What a place has to be given.
fn of_place(obstacle: Obstacle, place: HostKind) -> &'static str {
    match place {
        HostKind::Docker => {
            "start the container with 'docker run --device /dev/fuse --cap-add SYS_ADMIN', and with '--security-opt \
             apparmor=unconfined' where the host has AppArmor"
        }
        HostKind::Podman => {
            "start the container with 'podman run --device /dev/fuse --cap-add SYS_ADMIN', and with '--security-opt \
             label=disable' where the host has SELinux"
        }
        HostKind::Kubernetes => concat!(
            "the container needs 'securityContext: {privileged: true}', or /dev/fuse of a device plugin and 'capabilities: {add: \
             [SYS_ADMIN]}'; ",
            without_mount!()
        ),
        HostKind::OtherContainer => {
            "the container needs the device /dev/fuse and the capability SYS_ADMIN"
        }
        HostKind::Apptainer => APPTAINER,
        HostKind::Slurm => concat!(
            "the cluster's administrators have to allow FUSE on its nodes ('modprobe fuse', /dev/fuse with mode 0666, package \
             fuse3); ",
            without_mount!()
        ),
        HostKind::Wsl2 => {
            "'sudo modprobe fuse' loads the driver; 'wsl --update' in Windows brings a kernel that has it"
        }
        HostKind::Machine | HostKind::HostedNotebook | HostKind::Hub | HostKind::Wsl1 => {
            of_machine(obstacle)
        }
    }
}

/// What to do on a machine that tells nothing of itself.
fn of_machine(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NoDevice => {
            "'modprobe fuse' as root loads the driver; a container needs --device /dev/fuse --cap-add SYS_ADMIN"
        }
        Obstacle::DeviceDenied => {
            "something forbids it to root: a container needs --device /dev/fuse"
        }
        Obstacle::RootDenied => {
            "root lacks the capability SYS_ADMIN here; a container needs --cap-add SYS_ADMIN"
        }
        Obstacle::NoProgram | Obstacle::ProgramDenied => {
            "fusermount3 has to belong to root with mode 4755, on a file system without nosuid"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Obstacle; 5] = [
        Obstacle::NoDevice,
        Obstacle::DeviceDenied,
        Obstacle::RootDenied,
        Obstacle::NoProgram,
        Obstacle::ProgramDenied,
    ];

    fn facts(variables: &[&str], files: &[&'static str], kernel: &str) -> Facts {
        Facts {
            variables: variables.iter().map(ToString::to_string).collect(),
            files: files.to_vec(),
            is_root: true,
            kernel: kernel.to_string(),
            ..Facts::default()
        }
    }

    #[test]
    fn places_are_told_apart() {
        let place = |variables: &[&str], files: &[&'static str], kernel: &str| {
            facts(variables, files, kernel).place()
        };
        let linux = "6.1.0-28-amd64\n";
        assert_eq!(place(&[], &[], linux), HostKind::Machine);
        assert_eq!(place(&[], &[DOCKER_FILE], linux), HostKind::Docker);
        assert_eq!(
            place(&["container"], &[PODMAN_FILE], linux),
            HostKind::Podman
        );
        assert_eq!(place(&["container"], &[], linux), HostKind::OtherContainer);
        let pod = ["KUBERNETES_SERVICE_HOST"];
        assert_eq!(place(&pod, &[DOCKER_FILE], linux), HostKind::Kubernetes);
        assert_eq!(place(&[], &[KUBERNETES_FILE], linux), HostKind::Kubernetes);
        let hub = ["KUBERNETES_SERVICE_HOST", "JUPYTERHUB_SERVICE_PREFIX"];
        assert_eq!(place(&hub, &[KUBERNETES_FILE], linux), HostKind::Hub);
        let notebook = ["KAGGLE_KERNEL_RUN_TYPE"];
        assert_eq!(
            place(&notebook, &[DOCKER_FILE], linux),
            HostKind::HostedNotebook
        );
        assert_eq!(place(&["SLURM_JOB_ID"], &[], linux), HostKind::Slurm);
        let job = ["SLURM_JOB_ID", "APPTAINER_CONTAINER"];
        assert_eq!(place(&job, &[], linux), HostKind::Apptainer);
        let in_podman = place(&["SLURM_JOB_ID"], &[PODMAN_FILE], linux);
        assert_eq!(in_podman, HostKind::Podman);
        let wsl = "5.15.167.4-microsoft-standard-WSL2\n";
        assert_eq!(place(&[], &[], wsl), HostKind::Wsl2);
        assert_eq!(place(&[], &[DOCKER_FILE], wsl), HostKind::Docker);
        assert_eq!(place(&[], &[], "4.4.0-19041-Microsoft\n"), HostKind::Wsl1);
    }

    #[test]
    fn each_place_is_told_what_it_needs() {
        let cases = [
            (
                facts(&[], &[DOCKER_FILE], ""),
                "docker run --device /dev/fuse --cap-add SYS_ADMIN",
            ),
            (
                facts(&[], &[PODMAN_FILE], ""),
                "podman run --device /dev/fuse",
            ),
            (facts(&[], &[KUBERNETES_FILE], ""), "privileged: true"),
            (facts(&["APPTAINER_NAME"], &[], ""), "--fusemount"),
            (facts(&["SLURM_JOB_ID"], &[], ""), "administrators"),
            (facts(&["COLAB_RELEASE_TAG"], &[], ""), "without a mount"),
            (facts(&["JUPYTERHUB_API_URL"], &[], ""), "KubeSpawner"),
            (facts(&[], &[], "5-microsoft-standard-WSL2"), "modprobe"),
            (facts(&[], &[], "4.4-Microsoft"), "--set-version"),
        ];
        for (facts, words) in cases {
            for obstacle in [
                Obstacle::NoDevice,
                Obstacle::DeviceDenied,
                Obstacle::RootDenied,
            ] {
                let text = advice(obstacle, &facts);
                assert!(text.contains(words), "{obstacle:?} {facts:?}: {text}");
            }
        }
    }

    #[test]
    fn a_program_that_is_missing_or_powerless_is_told_of() {
        let machine = facts(&[], &[], "");
        let text = advice(Obstacle::NoProgram, &machine);
        assert!(text.contains("install the package fuse3"), "{text}");
        let slurm = facts(&["SLURM_JOB_ID"], &[], "");
        assert!(advice(Obstacle::NoProgram, &slurm).contains("unshare --map-root-user"));
        let pod = Facts {
            gains_nothing: true,
            ..facts(&["KUBERNETES_SERVICE_HOST"], &[], "")
        };
        let text = advice(Obstacle::ProgramDenied, &pod);
        assert!(text.contains("allowPrivilegeEscalation: true"), "{text}");
        let user = Facts {
            is_root: false,
            ..machine.clone()
        };
        assert!(advice(Obstacle::DeviceDenied, &user).contains("chmod 666"));
        let root = Facts {
            capabilities: 1 << SYS_ADMIN,
            ..machine.clone()
        };
        assert!(advice(Obstacle::RootDenied, &root).contains("dmesg"));
        assert!(advice(Obstacle::RootDenied, &machine).contains("lacks the capability"));
    }

    #[test]
    fn an_advice_is_a_clause_of_one_line() {
        let mut places: Vec<Facts> = SIGNS.iter().map(|sign| facts(&[], &[*sign], "")).collect();
        places.extend(VARIABLES.iter().map(|(name, _)| facts(&[*name], &[], "")));
        places.push(facts(&["container"], &[], ""));
        for place in places {
            for obstacle in ALL {
                let text = advice(obstacle, &place);
                assert!(text.len() > 30 && text.len() < 320, "{text}");
                let is_clause =
                    !text.ends_with('.') && !text.contains('\n') && !text.contains("  ");
                assert!(is_clause, "{text}");
            }
        }
    }

    #[test]
    fn this_process_sees_where_it_is() {
        let facts = Facts::probe();
        assert!(!facts.kernel.is_empty());
        let status = "Name:\tzarrfs\nNoNewPrivs:\t1\nCapEff:\t000001ffffffffff\n";
        assert_eq!(field(status, "CapEff:"), Some("000001ffffffffff"));
        assert_eq!(field(status, "NoNewPrivs:"), Some("1"));
    }
}
