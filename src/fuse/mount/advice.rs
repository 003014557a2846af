//! What to do where this process cannot mount, by the obstacle and by where it runs (`host`).
//!
//! The advice is one clause that follows the fault, such as `/dev/fuse: not there; ...`, and names the command or the
//! setting, and whose it is. Where nothing helps, it names the commands that read a store without a mount.

use super::host::{Host, HostKind};

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

/// The commands that need no mount.
macro_rules! without_mount {
    () => {
        "'zarrfs cp', 'cat' and 'info' read a store without a mount"
    };
}

/// Returns what to do about an obstacle, in one clause.
pub(super) fn advice(obstacle: Obstacle, host: &Host) -> &'static str {
    let kind = host.kind();
    match (obstacle, kind) {
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
        (Obstacle::NoProgram, _) => no_program(kind),
        (Obstacle::DeviceDenied, _) if !host.is_root && kind.has_root() => {
            "root has to let users open it: 'chmod 666 /dev/fuse'"
        }
        (Obstacle::ProgramDenied, _) if host.gains_nothing => gains_nothing(kind),
        (Obstacle::RootDenied, HostKind::Machine) if host.may_administer() => {
            "root here may mount, but something forbids it: look for AppArmor or SELinux in 'dmesg'"
        }
        (obstacle, kind) => of_host(obstacle, kind),
    }
}

/// What to do where fusermount3 is missing, which every user but root needs.
fn no_program(kind: HostKind) -> &'static str {
    match kind {
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
fn gains_nothing(kind: HostKind) -> &'static str {
    match kind {
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

/// What a host has to be given.
fn of_host(obstacle: Obstacle, kind: HostKind) -> &'static str {
    match kind {
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
    use super::super::host::tests::{host, hosts};
    use super::super::host::{DOCKER_FILE, KUBERNETES_FILE, PODMAN_FILE, SYS_ADMIN};
    use super::*;

    const ALL: [Obstacle; 5] = [
        Obstacle::NoDevice,
        Obstacle::DeviceDenied,
        Obstacle::RootDenied,
        Obstacle::NoProgram,
        Obstacle::ProgramDenied,
    ];

    #[test]
    fn each_host_is_told_what_it_needs() {
        let cases = [
            (
                host(&[], &[DOCKER_FILE], ""),
                "docker run --device /dev/fuse --cap-add SYS_ADMIN",
            ),
            (
                host(&[], &[PODMAN_FILE], ""),
                "podman run --device /dev/fuse",
            ),
            (host(&[], &[KUBERNETES_FILE], ""), "privileged: true"),
            (host(&["APPTAINER_NAME"], &[], ""), "--fusemount"),
            (host(&["SLURM_JOB_ID"], &[], ""), "administrators"),
            (host(&["COLAB_RELEASE_TAG"], &[], ""), "without a mount"),
            (host(&["JUPYTERHUB_API_URL"], &[], ""), "KubeSpawner"),
            (host(&[], &[], "5-microsoft-standard-WSL2"), "modprobe"),
            (host(&[], &[], "4.4-Microsoft"), "--set-version"),
        ];
        for (host, words) in cases {
            for obstacle in [
                Obstacle::NoDevice,
                Obstacle::DeviceDenied,
                Obstacle::RootDenied,
            ] {
                let text = advice(obstacle, &host);
                assert!(text.contains(words), "{obstacle:?} {host:?}: {text}");
            }
        }
    }

    #[test]
    fn a_program_that_is_missing_or_powerless_is_told_of() {
        let machine = host(&[], &[], "");
        let text = advice(Obstacle::NoProgram, &machine);
        assert!(text.contains("install the package fuse3"), "{text}");
        let slurm = host(&["SLURM_JOB_ID"], &[], "");
        assert!(advice(Obstacle::NoProgram, &slurm).contains("unshare --map-root-user"));
        let mut pod = host(&["KUBERNETES_SERVICE_HOST"], &[], "");
        pod.gains_nothing = true;
        let text = advice(Obstacle::ProgramDenied, &pod);
        assert!(text.contains("allowPrivilegeEscalation: true"), "{text}");
        let mut user = machine.clone();
        user.is_root = false;
        assert!(advice(Obstacle::DeviceDenied, &user).contains("chmod 666"));
        let mut root = machine.clone();
        root.capabilities = 1 << SYS_ADMIN;
        assert!(advice(Obstacle::RootDenied, &root).contains("dmesg"));
        assert!(advice(Obstacle::RootDenied, &machine).contains("lacks the capability"));
    }

    #[test]
    fn an_advice_is_a_clause_of_one_line() {
        for host in hosts() {
            for obstacle in ALL {
                let text = advice(obstacle, &host);
                assert!(text.len() > 30 && text.len() < 320, "{text}");
                let is_clause =
                    !text.ends_with('.') && !text.contains('\n') && !text.contains("  ");
                assert!(is_clause, "{text}");
            }
        }
    }
}
