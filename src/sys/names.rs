//! The addresses of hosts, by their names.

use std::{
    ffi::CStr,
    io,
    net::{SocketAddr, ToSocketAddrs},
};

/// Asks the system for the addresses of a host. Servers that do not answer keep who asks for minutes.
pub(crate) fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Whether the system has got no answer, so that the host may be known to who can give one. What it said is left as its text alone.
pub(crate) fn is_for_want_of_an_answer(error: &io::Error) -> bool {
    // SAFETY: it takes any number; what it gives ends with a zero, and stays for ever.
    let text = unsafe { CStr::from_ptr(libc::gai_strerror(libc::EAI_AGAIN)) };
    error.to_string().ends_with(&*text.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_no_want_of_an_answer() {
        assert!(!look_up("localhost", 7).unwrap().is_empty());
        let error = look_up("no\0name", 7).unwrap_err();
        assert!(!is_for_want_of_an_answer(&error), "{error}");
        let text = "failed to lookup address information: Temporary failure in name resolution";
        assert!(is_for_want_of_an_answer(&io::Error::other(text)));
    }
}
