//! Throw-away certificate authorities and certificates, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names and addresses of this machine, as subject alternative names.
pub const LOCALHOST_NAMES: &str = "DNS:localhost,IP:127.0.0.1";

/// The configuration file of `openssl ca`. `DIR` stands for the authority's folder.
const CA_CONFIG: &str = "[ca]\ndefault_ca=c\n[c]\ndatabase=DIR/index\nserial=DIR/serial\nnew_certs_dir=DIR\ndefault_md=sha256\n\
                  policy=p\ncopy_extensions=copy\nunique_subject=no\n[p]\ncommonName=supplied\n";

/// A certificate authority whose key and certificates lie in one folder.
#[derive(Debug)]
pub struct CertificateAuthority {
    dir: PathBuf,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key, which only its owner may read.
    pub key: PathBuf,
}

impl CertificateAuthority {
    /// Creates `dir` and an authority whose files it holds.
    pub fn new(dir: &Path) -> CertificateAuthority {
        std::fs::create_dir_all(dir).expect("a folder for certificates");
        let config = CA_CONFIG.replace("DIR", &dir.display().to_string());
        std::fs::write(dir.join("ca.cnf"), config).expect("a file in it");
        std::fs::write(dir.join("index"), "").expect("a file in it");
        std::fs::write(dir.join("serial"), "1000\n").expect("a file in it");
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem \
                     -days 2 -subj";
        let name = format!("/CN={}", dir.file_name().unwrap_or_default().display());
        run_openssl(dir, words.split_whitespace().chain([name.as_str()]));
        CertificateAuthority { dir: dir.to_owned() }
    }

    /// The file of the authority's own certificate.
    pub fn certificate_path(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Issues a certificate for these names, such as [`LOCALHOST_NAMES`]. It is valid from now on, for a day.
    pub fn issue_certificate(&self, file: &str, names: &str) -> CertificateFiles {
        self.sign_certificate(file, names, ["-days", "1"])
    }

    /// Issues a certificate that has expired.
    pub fn issue_expired(&self, file: &str, names: &str) -> CertificateFiles {
        self.sign_certificate(file, names, ["-startdate", "200101000000Z"])
    }

    fn sign_certificate(&self, file: &str, names: &str, dates: [&str; 2]) -> CertificateFiles {
        let [key, cert, request] = ["key", "pem", "csr"].map(|ending| format!("{file}.{ending}"));
        let names = format!("subjectAltName={names}");
        let words = "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=infill";
        let files = ["-addext", &names, "-keyout", &key, "-out", &request];
        run_openssl(&self.dir, words.split_whitespace().chain(files));
        let end_date: &[&str] = if dates[0] == "-startdate" { &["-enddate", "200102000000Z"] } else { &[] };
        let words = "ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key";
        let files = ["-in", request.as_str(), "-out", cert.as_str()];
        let arguments = words.split_whitespace().chain(files).chain(dates);
        run_openssl(&self.dir, arguments.chain(end_date.iter().copied()));
        CertificateFiles { cert: self.dir.join(cert), key: self.dir.join(key) }
    }
}

fn run_openssl<'w>(dir: &Path, words: impl Iterator<Item = &'w str>) {
    let output = Command::new("openssl").args(words).current_dir(dir).output();
    let output = output.expect("the tests need openssl");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}
