//! Reads a profile of a model's layers, as `infill.profile_layers` writes it.

use std::io::Read as _;
use std::sync::Arc;

use infill_model::LayerProfile;

/// Largest file, bytes. It has room for the most layers that a profile may have, at 400 bytes each.
const MAX_BYTES: u64 = 256 * 1024;

/// Reads the file that `--layers` names.
///
/// # Errors
/// When the file cannot be read, or is not such a profile. The text says what is wrong, and where.
pub(crate) fn read_layer_profile(path: &str) -> Result<Arc<LayerProfile>, String> {
    let file = std::fs::File::open(path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| format!("cannot read {path}: {e}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("{path} has more than {MAX_BYTES} bytes; expected a profile of layers"));
    }
    parse_layer_profile(&text).map_err(|what| format!("{path}: {what}"))
}

fn parse_layer_profile(text: &str) -> Result<Arc<LayerProfile>, String> {
    let profile: LayerProfile =
        serde_json::from_str(text).map_err(|e| format!("{e}; expected what infill.profile_layers writes"))?;
    profile.check_layers().map_err(|e| e.to_string())?;
    Ok(Arc::new(profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"version":1,"device":"cpu","batch":8,"element_bytes":4,"layers":[
        {"name":"embed","forward_secs":0.001,"backward_secs":0.002,"parameters":100,"activation_bytes":64},
        {"name":"head","forward_secs":0.003,"backward_secs":0.006,"parameters":50,"activation_bytes":32}]}"#;

    #[test]
    fn a_profile_of_the_python_package_is_read() {
        let profile = parse_layer_profile(FILE).unwrap();
        assert_eq!((profile.batch, profile.layers.len(), profile.layers[1].parameters), (8, 2, 50));
    }

    #[test]
    fn an_error_names_the_wrong_place_of_the_file() {
        let error = |from: &str, to: &str| parse_layer_profile(&FILE.replace(from, to)).unwrap_err();
        assert_eq!(error("\"version\":1", "\"version\":7"), "version is 7; expected 1");
        assert!(error("0.003", "-3").starts_with("layer 2: forward_secs is -3"));
        assert!(error("\"parameters\":50", "\"parameters\":\"many\"").contains("line 3"));
        assert!(parse_layer_profile("{}").unwrap_err().contains("missing field"));
        assert!(
            read_layer_profile("/nowhere/layers.json")
                .unwrap_err()
                .starts_with("cannot read /nowhere/layers.json")
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long.json");
        std::fs::write(&path, " ".repeat(MAX_BYTES as usize + 1)).unwrap();
        assert!(
            read_layer_profile(path.to_str().unwrap()).unwrap_err().contains("has more than 262144 bytes")
        );
    }
}
