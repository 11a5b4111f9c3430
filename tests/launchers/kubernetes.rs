//! Processes with what the pods of an indexed Job have (`docs/kubernetes/indexed-job.yaml`).

use super::{CCL_PERF, HOSTS, SWEEP, check_table, script, there_are};

/// Three pods; the name of the first one is known a while after they have begun.
#[test]
fn pods_of_an_indexed_job() {
    if !there_are(&HOSTS) {
        return;
    }
    come_by("", r#"sleep 1; echo "10.88.0.1 ccl-0.ccl" >>/etc/hosts"#);
}

/// What the name stands for at first is where the first pod was before: nobody is there, or another pod.
#[test]
fn pods_whose_first_one_was_elsewhere_before() {
    if !there_are(&HOSTS) {
        return;
    }
    for before in ["10.88.0.99", "10.88.0.3"] {
        come_by(
            &format!(r#"echo "{before} ccl-0.ccl" >>/etc/hosts"#),
            r#"sleep 2; sed "s/.* ccl-0/10.88.0.1 ccl-0/" /etc/hosts >"$TMPDIR/now"; cat "$TMPDIR/now" >/etc/hosts"#,
        );
    }
}

/// Runs three pods, which find the names as they are `before` and then as `after` has left them.
fn come_by(before: &str, after: &str) {
    let Some(mut head) = script("hosts", "--hosts 3 --once bash -c") else {
        return;
    };
    let line = format!(
        r#"{before}
        for pod in 0 1 2; do
            "$AGENT" host$pod "env JOB_COMPLETION_INDEX=$pod WORLD_SIZE=3 MASTER_ADDR=ccl-0.ccl CCL_MASTER_PORT=29501 \
                CCL_SECRET=which-nobody-can-guess {CCL_PERF} allreduce {SWEEP}" &
            pids="$pids $!"
        done
        {after}
        for pid in $pids; do wait $pid || exit 1; done"#
    );
    let output = head.arg(line).output().unwrap();
    check_table(
        &output,
        "# ranks      3, started by Kubernetes (indexed Job)",
        "tcp",
    );
}
