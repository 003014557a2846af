//! Credentials that a program prints, `credential_process`.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{IssuedCredential, times};

/// The longest output that is read, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

/// How much of what a program says of its failure is repeated, in characters.
const MAX_COMPLAINT: usize = 200;

/// Runs a command in a shell and returns what it prints. Its arguments may be secrets, so no message has them.
pub(super) fn credentials(command: &str) -> Result<IssuedCredential, String> {
    let started = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.map_err(|error| format!("credential_process: {error}"))?;
    let complaint = child.stderr.take();
    let complaint = std::thread::spawn(move || read(complaint));
    let output = read(child.stdout.take());
    let status = child
        .wait()
        .map_err(|error| format!("credential_process: {error}"))?;
    if !status.success() {
        let complaint = complaint.join().unwrap_or_default();
        let complaint = String::from_utf8_lossy(&complaint);
        let complaint: String = complaint.trim().chars().take(MAX_COMPLAINT).collect();
        return Err(format!("credential_process failed ({status}): {complaint}"));
    }
    printed(&output).map_err(|what| format!("credential_process: {what}"))
}

fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        // What could be read is not JSON then.
        let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut text);
    }
    text
}

/// Reads what a program has printed; names are written in any case.
fn printed(output: &[u8]) -> Result<IssuedCredential, String> {
    let Ok(Value::Object(members)) = serde_json::from_slice(output) else {
        return Err("expected an object of JSON".to_string());
    };
    let member = |name: &str| {
        let mut members = members.iter();
        let found = members.find(|(member, _)| member.eq_ignore_ascii_case(name));
        found
            .map(|(_, value)| value)
            .filter(|value| !value.is_null())
    };
    if member("Version").and_then(Value::as_u64) != Some(1) {
        return Err("expected \"Version\": 1".to_string());
    }
    let text = |name: &str| {
        let text = member(name).and_then(Value::as_str);
        text.map(str::to_string)
            .ok_or_else(|| format!("expected a text as {name}"))
    };
    let expiry = match member("Expiration") {
        None => None,
        Some(_) => {
            let time = times::read(&text("Expiration")?);
            Some(time.ok_or("expected a time as Expiration, such as 2030-01-31T12:00:00Z")?)
        }
    };
    let token = member("SessionToken")
        .map(|_| text("SessionToken"))
        .transpose()?;
    Ok(IssuedCredential::new(
        text("AccessKeyId")?,
        text("SecretAccessKey")?,
        token,
        expiry,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_credentials_are_read() {
        let whole = r#"echo '{"Version": 1, "AccessKeyId": "K", "secretaccesskey": "S", "SessionToken": "T",
            "Expiration": "2099-01-01T00:00:00+00:00", "more": []}'"#;
        let found = credentials(whole).unwrap();
        assert_eq!(found.credential.key_id, "K");
        assert_eq!(found.credential.secret_key, "S");
        assert_eq!(found.credential.token.as_deref(), Some("T"));
        assert_eq!(found.expiry, times::read("2099-01-01T00:00:00Z"));
        let found = credentials(r#"echo '{"Version":1,"AccessKeyId":"K","SecretAccessKey":"S"}'"#);
        let found = found.unwrap();
        assert_eq!((&found.credential.token, found.expiry), (&None, None));
    }

    #[test]
    fn a_program_that_gives_none_is_an_error() {
        for (command, expected) in [
            (
                "echo not signed in >&2; exit 3",
                "failed (exit status: 3): not signed in",
            ),
            ("echo", "expected an object of JSON"),
            ("echo '[]'", "expected an object of JSON"),
            (r#"echo '{"Version":2}'"#, "expected \"Version\": 1"),
            (
                r#"echo '{"Version":1,"AccessKeyId":"K"}'"#,
                "expected a text as SecretAccessKey",
            ),
            (
                r#"echo '{"Version":1,"AccessKeyId":"K","SecretAccessKey":"S","Expiration":"soon"}'"#,
                "expected a time as Expiration",
            ),
            ("kill -9 $$", "signal: 9"),
        ] {
            let error = credentials(command).err().unwrap();
            assert!(error.contains(expected), "{command}: {error}");
        }
    }

    #[test]
    fn a_program_may_say_much() {
        let error = credentials("yes | head -c 300000 >&2; exit 1")
            .err()
            .unwrap();
        assert!(error.len() < 300, "{error}");
        assert!(credentials("yes | head -c 5000000").is_err());
    }
}
