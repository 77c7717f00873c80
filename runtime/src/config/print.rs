//! The configuration as a commented TOML file.

use super::Config;

impl Config {
    /// Every key with its effective value, in the order and with the comments of the documentation; keys that are not
    /// set stand in comments, with an example.
    ///
    /// What is printed reads back as the same configuration, unless a URL carries credentials: those are printed as
    /// `***`. There is no other secret in a configuration, keys are in files of their own.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let defaults = Self::default();
        let mut section = "";
        let mut printed = String::with_capacity(TEMPLATE.len());
        for line in TEMPLATE.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name;
            }
            let changed = parse_line(line).and_then(|(key, comment)| {
                let dotted = format!("{section}.{key}");
                let literal = self.literal(&dotted)?;
                (Some(&literal) != defaults.literal(&dotted).as_ref())
                    .then(|| with_comment(&format!("{key} = {literal}"), comment))
            });
            printed.push_str(changed.as_deref().unwrap_or(line));
            printed.push('\n');
        }
        printed
    }
}

/// Key and comment of a line that sets a key or shows how to.
fn parse_line(line: &str) -> Option<(&str, Option<&str>)> {
    let (key, rest) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    Some((key, rest.split_once(" # ").map(|(_, comment)| comment)))
}

fn with_comment(setting: &str, comment: Option<&str>) -> String {
    match comment {
        Some(comment) => format!("{setting:COMMENT_COLUMN$}# {comment}"),
        None => setting.to_owned(),
    }
}

/// The documented file with the defaults; tests compare it with the code.
const TEMPLATE: &str = include_str!("template.toml");

/// Where the comments of the template begin.
const COMMENT_COLUMN: usize = 35;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, Known, Sources};

    #[test]
    fn the_template_names_every_key_in_order_with_its_default() {
        let mut section = String::new();
        let mut named = Vec::new();
        for line in TEMPLATE.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.to_owned();
            } else if let Some((key, _)) = parse_line(line) {
                named.push(format!("{section}.{key}"));
            }
        }
        let config = Config::default();
        let expected: Vec<_> = config
            .sections()
            .iter()
            .flat_map(|s| s.keys().iter().map(|key| format!("{}.{key}", s.name())))
            .collect();
        assert_eq!(named, expected);
        let read = Config::load(
            Sources::new().with_file(ConfigFile::new("template.toml", TEMPLATE)),
            &Known::default(),
        );
        assert_eq!(read.unwrap(), config);
    }

    #[test]
    fn examples_in_comments_are_valid() {
        let active: String = TEMPLATE
            .lines()
            .map(|line| line.strip_prefix("# ").unwrap_or(line).to_owned() + "\n")
            .collect();
        let read = Config::load(
            Sources::new().with_file(ConfigFile::new("template.toml", active)),
            &Known::default().without(&[]),
        )
        .unwrap();
        assert_eq!(read.node.id.unwrap().as_str(), "tm-1");
    }
}
