//! Processes with what the pods of an indexed Job have (`docs/kubernetes/indexed-job.yaml`).

use super::{CCL_PERF, HOSTS, SWEEP, check_table, script, there_are};

/// Three pods; the name of the first one is known a while after they have begun.
#[test]
fn pods_of_an_indexed_job() {
    if !there_are(&HOSTS) {
        return;
    }
    let Some(mut head) = script("hosts", "--hosts 3 --once bash -c") else {
        return;
    };
    let line = format!(
        r#"for pod in 0 1 2; do
            "$AGENT" host$pod "env JOB_COMPLETION_INDEX=$pod WORLD_SIZE=3 MASTER_ADDR=ccl-0.ccl CCL_MASTER_PORT=29501 \
                CCL_SECRET=which-nobody-can-guess {CCL_PERF} allreduce {SWEEP}" &
            pids="$pids $!"
        done
        sleep 1
        echo "10.88.0.1 ccl-0.ccl" >>/etc/hosts
        for pid in $pids; do wait $pid || exit 1; done"#
    );
    let output = head.arg(line).output().unwrap();
    check_table(
        &output,
        "# ranks      3, started by Kubernetes (indexed Job)",
        "tcp",
    );
}
