//! `--profile-by`: the trials of a search that share a profile.
//!
//! The command's hash ignores numbers, because a learning rate changes no speed. But the number of layers
//! does. Trials with the same values of the declared parameters share one profile, and their other
//! parameters make no difference.

use std::path::Path;
use std::str::FromStr;

use super::launcher_detection::skip_env;
use infill_model::MAX_NAME_CHARS;

/// Most parameters that may be declared.
const MOST_PARAMETERS: usize = 8;

/// The programs before a script that do not tell one program from another.
const RUNNERS: [&str; 5] = ["python", "torchrun", "accelerate", "deepspeed", "srun"];

/// The names of the parameters that `--profile-by` declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileParameters(Vec<String>);

impl FromStr for ProfileParameters {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.len() > MOST_PARAMETERS {
            return Err(format!("more than {MOST_PARAMETERS} parameters"));
        }
        let is_valid = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        };
        if let Some(invalid) = names.iter().find(|name| !is_valid(name)) {
            return Err(format!(
                "{invalid:?} is not the name of a parameter; expected names such as layers,hidden"
            ));
        }
        Ok(ProfileParameters(names))
    }
}

impl ProfileParameters {
    /// The name of the profile of this command: `train.py:layers=3:hidden=64`. `program` replaces the
    /// program's name.
    ///
    /// # Errors
    /// When the command does not have one of the parameters, or the name is too long.
    pub(crate) fn profile_name(&self, program: Option<&str>, command: &[String]) -> Result<String, String> {
        let mut name = program.map_or_else(|| program_name(command), str::to_owned);
        for parameter in &self.0 {
            let value = parameter_value(parameter, command).ok_or_else(|| {
                format!(
                    "the command has neither --{parameter}=VALUE, --{parameter} VALUE nor {parameter}=VALUE"
                )
            })?;
            name += &format!(":{parameter}={value}");
        }
        if name.chars().count() > MAX_NAME_CHARS {
            return Err(format!(
                "the name {name:?} has more than {MAX_NAME_CHARS} characters: declare fewer parameters"
            ));
        }
        Ok(name)
    }
}

/// The file name of the script: the first word with an extension, else the first that is no option and
/// starts no other program. Words such as `lr=1` begin the program's own parameters.
fn program_name(command: &[String]) -> String {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let words = skip_env(&words).iter().filter(|word| !word.starts_with('-'));
    let parts = words.take_while(|word| !word.contains('='));
    let names: Vec<&str> = parts.filter_map(|word| Path::new(word).file_name()?.to_str()).collect();
    let programs = || names.iter().filter(|name| !is_runner(name));
    let script = programs().find(|name| Path::new(name).extension().is_some_and(|ext| !ext.is_empty()));
    let found = script.or_else(|| programs().next()).or(names.first());
    found.map(|name| (*name).to_owned()).unwrap_or_default()
}

/// Whether a program only starts another one. Python may have its version in its name: `python3.11`.
fn is_runner(name: &str) -> bool {
    RUNNERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The last value that the command has for a parameter. Dashes and underscores in names are the same.
fn parameter_value<'a>(parameter: &str, command: &'a [String]) -> Option<&'a str> {
    let is_parameter = |name: &str| name.replace('-', "_") == parameter.replace('-', "_");
    let mut found = None;
    for (index, word) in command.iter().enumerate() {
        let bare = word.trim_start_matches(['-', '+']);
        match bare.split_once('=') {
            Some((name, value)) if is_parameter(name) => found = Some(value),
            None if word.starts_with('-') && is_parameter(bare) => {
                let next = command.get(index + 1).map(String::as_str);
                found = next.filter(|value| !value.starts_with("--")).or(found);
            }
            _ => {}
        }
    }
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parameters: &str, program: Option<&str>, command: &str) -> String {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let parameters: ProfileParameters = parameters.parse().unwrap();
        parameters.profile_name(program, &command).unwrap_or_else(|why| why)
    }

    #[test]
    fn trials_with_the_same_declared_values_share_a_name() {
        let expected = "train.py:layers=3:hidden=64";
        for command in [
            "python train.py --layers=3 --hidden=64 --lr=0.1",
            "python3 -u train.py --lr=0.2 --hidden 64 --act gelu --layers 3",
            "python ./src/train.py layers=3 +hidden=64 act=relu",
            "torchrun --nproc-per-node 4 train.py -layers=9 --layers=3 --hidden=64",
        ] {
            assert_eq!(name("layers,hidden", None, command), expected, "{command}");
        }
        assert_eq!(name("layers", Some("bert"), "python train.py --layers=4"), "bert:layers=4");
        for command in [
            "torchrun --nproc-per-node=4 train.py --layers=4",
            "python3.11 train.py --layers=4",
            "env OMP_NUM_THREADS=4 python train.py --layers=4",
        ] {
            assert_eq!(name("layers", None, command), "train.py:layers=4", "{command}");
        }
        assert_eq!(name("layers", None, "python3.11 -m nas --layers=4"), "nas:layers=4");
        assert_eq!(name("layers", None, "python -m nas layers=4 data=a.csv b.csv"), "nas:layers=4");
        assert_eq!(name("hidden_size", None, "./nas --hidden-size=-1"), "nas:hidden_size=-1");
        assert_eq!(name("model.depth", None, "python t.py model.depth=2"), "t.py:model.depth=2");
    }

    #[test]
    fn a_missing_parameter_is_an_error_that_says_what_is_expected() {
        let missing = "the command has neither --layers=VALUE, --layers VALUE nor layers=VALUE";
        for command in ["python train.py --lr=1", "python train.py --layers", "t --layers --x", "t --layers="]
        {
            assert_eq!(name("layers", None, command), missing, "{command}");
        }
        let long = format!("t --layers={}", "9".repeat(300));
        assert!(name("layers", None, &long).contains("more than 200 characters"));
    }

    #[test]
    fn invalid_names_are_refused() {
        for (text, words) in
            [("", "not the name"), ("a,,b", "not the name"), ("a b", "not the name"), ("a=3", "not the name")]
        {
            assert!(ProfileParameters::from_str(text).is_err_and(|why| why.contains(words)), "{text:?}");
        }
        assert_eq!(
            ProfileParameters::from_str("a,b,c,d,e,f,g,h,i"),
            Err("more than 8 parameters".to_owned())
        );
    }
}
