//! `infill rehearse` with the PyTorch example, as a user runs it on a login node.

use serde_json::Value;

use crate::harness::Site;

/// Rehearses the example in `dir` with these further flags. Returns the exit code and the document.
fn rehearse(site: &Site, dir: &str, sizes: &str, flags: &str) -> (Option<i32>, Value) {
    let script = format!(
        "mkdir -p /scratch/{dir} && cd /scratch/{dir} && \
         exec infill rehearse --json --train-secs 1 --grace 20 --sizes {sizes} -- \
         sh -c 'exec python3 /opt/infill/examples/train_ddp.py --steps 100000 --step-secs 0.05 {flags}'"
    );
    let output = site.exec("alice", &["bash", "-c", &script]);
    let text = String::from_utf8_lossy(&output.stdout);
    let document = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), document)
}

fn kinds(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["kind"].as_str()).collect()
}

#[test]
fn the_example_is_ready_and_a_lost_checkpoint_is_found() {
    let site = Site::acting();
    let (code, document) = rehearse(&site, "sound", "1,2,1", "");
    assert_eq!(code, Some(0), "{document:#}");
    let steps = |run: usize, key: &str| document["runs"][run][key].as_u64().expect("a step");
    assert_eq!(steps(0, "first_step"), 1);
    for run in [1, 2] {
        assert_eq!(steps(run, "first_step"), steps(run - 1, "last_step") + 1, "{document:#}");
    }
    assert_eq!(document["runs"][1]["processes"], 2);
    // Each run has a checkpoint of its own, as with a path that names the time.
    let (code, document) = rehearse(&site, "lost", "1,2", "--checkpoint $INFILL_GENERATION.pt");
    assert_eq!((code, kinds(&document)), (Some(1), vec!["began_again"]), "{document:#}");
}
