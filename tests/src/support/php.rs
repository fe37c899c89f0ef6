//! Runs the system's PHP-FPM in a temporary folder.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::soon;

/// A running PHP-FPM. Dropping it stops the server.
pub(crate) struct PhpFpm {
    child: Child,
    folder: PathBuf,
}

impl PhpFpm {
    /// Starts PHP-FPM with its files in `folder`, and waits until it accepts connections.
    pub(crate) async fn start(folder: &Path) -> Self {
        let socket = folder.join("fpm.sock");
        std::fs::create_dir_all(folder.join("sessions")).expect("a folder");
        let config = folder.join("fpm.conf");
        let text = format!(
            "[global]\nerror_log = {folder}/fpm.log\npid = {folder}/fpm.pid\ndaemonize = no\n[www]\nuser = root\ngroup = root\n\
             listen = {socket}\npm = static\npm.max_children = 4\nping.path = /fpm-ping\nclear_env = no\n\
             catch_workers_output = no\nphp_admin_value[session.save_path] = {folder}/sessions\n\
             php_admin_value[upload_max_filesize] = 8M\nphp_admin_value[post_max_size] = 9M\n\
             php_admin_value[error_log] = /dev/stderr\n",
            folder = folder.display(),
            socket = socket.display()
        );
        std::fs::write(&config, text).expect("a file");
        let child = Command::new(test_servers::versioned_program("php-fpm"))
            .args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"])
            .arg(&config)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("php-fpm");
        let running = Self { child, folder: folder.to_owned() };
        soon(async {
            while tokio::net::UnixStream::connect(&socket).await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        running
    }

    /// The settings of a proxy for this server.
    pub(crate) fn backend(&self) -> String {
        format!(
            "backend_protocol: fastcgi, backend_host: {:?}",
            format!("unix:{}/fpm.sock", self.folder.display())
        )
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // SIGTERM also stops its child processes, which SIGKILL does not.
        drop(Command::new("kill").arg(self.child.id().to_string()).status());
        drop(self.child.wait());
    }
}
