//! Putting a configuration together from its sources.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::de::{DeTable, DeValue};

use super::{
    Config,
    choices::nearest,
    error::{ConfigError, Origin, Problem, finish},
    section::SetError,
    validate::Known,
    value::Raw,
};

/// Where a configuration comes from; later sources override earlier ones, in the order of the fields.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Sources {
    /// Defaults of a command where they differ from those of the file: dotted key and value.
    pub presets: Vec<(String, String)>,
    /// The file.
    pub file: Option<ConfigFile>,
    /// Environment variables; those without [`ENVIRONMENT_PREFIX`] are skipped. An empty value unsets an optional key.
    pub environment: Vec<(String, String)>,
    /// Flags: dotted key and value.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// No source: the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a default of the command.
    #[must_use]
    pub fn with_preset(mut self, key: &str, value: impl Into<String>) -> Self {
        self.presets.push((key.to_owned(), value.into()));
        self
    }

    /// Takes a file that was read already.
    #[must_use]
    pub fn with_file(mut self, file: ConfigFile) -> Self {
        self.file = Some(file);
        self
    }

    /// Reads a file; blocks.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if it cannot be read or is not UTF-8.
    pub fn read_file(self, path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source: Arc::new(source),
        })?;
        Ok(self.with_file(ConfigFile::new(path, text)))
    }

    /// Takes environment variables.
    #[must_use]
    pub fn with_environment(mut self, pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(pairs);
        self
    }

    /// Takes a flag.
    #[must_use]
    pub fn with_flag(mut self, key: &str, value: impl Into<String>) -> Self {
        self.flags.push((key.to_owned(), value.into()));
        self
    }
}

/// The text of a configuration file and its name for messages.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    /// A text and the path that messages name.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }
}

/// The variables of this process that belong to the configuration, for [`Sources::with_environment`].
///
/// # Errors
/// [`ConfigError::Invalid`] if the value of one is not Unicode.
pub fn environment() -> Result<Vec<(String, String)>, ConfigError> {
    let mut pairs = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with(ENVIRONMENT_PREFIX) {
            continue;
        }
        match value.into_string() {
            Ok(value) => pairs.push((name, value)),
            Err(_) => problems.push(Problem::rule(
                &name,
                format!("environment variable {name} is not Unicode"),
            )),
        }
    }
    finish(pairs, problems)
}

impl Config {
    /// Puts a configuration together and checks it.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`] if the file is not TOML; [`ConfigError::Invalid`] with all unknown keys and wrong values,
    /// or, if there are none, with all values that break a rule.
    pub fn load(sources: Sources, known: &Known<'_>) -> Result<Self, ConfigError> {
        let mut loader = Loader::default();
        for (key, value) in sources.presets {
            loader.set(&key, &Raw::Text(value), Origin::Command);
        }
        if let Some(file) = sources.file {
            loader.file(&file)?;
        }
        let mut variables = sources.environment;
        variables.sort();
        for (name, value) in variables {
            loader.variable(&name, value);
        }
        for (key, value) in sources.flags {
            loader.set(&key, &Raw::Text(value), Origin::Flag);
        }
        let Loader {
            config,
            origins,
            problems,
        } = loader;
        let config = finish(config, problems)?;
        let mut broken = config.problems(known);
        for problem in &mut broken {
            problem.origin = origins.get(&problem.key).cloned();
        }
        finish(config, broken)
    }
}

/// Collects values, where they came from, and what is wrong with them.
#[derive(Debug, Default)]
struct Loader {
    config: Config,
    origins: BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

impl Loader {
    fn file(&mut self, file: &ConfigFile) -> Result<(), ConfigError> {
        let (table, errors) = DeTable::parse_recoverable(&file.text);
        // Later errors are often consequences of the first.
        if let Some(error) = errors.iter().min_by_key(|error| error_start(error)) {
            return Err(ConfigError::Syntax {
                path: file.path.clone(),
                line: line_of(&file.text, error_start(error)),
                column: column_of(&file.text, error_start(error)),
                message: error.message().trim().replace('\n', ", "),
            });
        }
        let origin = |at: usize| Origin::File {
            path: file.path.clone(),
            line: line_of(&file.text, at),
        };
        // A map sorts by name; problems are reported in the order of the file.
        let mut sections: Vec<_> = table.get_ref().iter().collect();
        sections.sort_by_key(|(name, _)| name.span().start);
        for (name, section) in sections {
            let Some(section_name) = self.known_section(name.get_ref()) else {
                let problem = self.unknown_section(name.get_ref());
                self.problems.push(problem.at(origin(name.span().start)));
                continue;
            };
            let DeValue::Table(keys) = section.get_ref() else {
                let problem = Problem::rule(
                    section_name,
                    format!(
                        "{section_name} is a section: write [{section_name}] and its keys below"
                    ),
                );
                self.problems.push(problem.at(origin(name.span().start)));
                continue;
            };
            let mut keys: Vec<_> = keys.iter().collect();
            keys.sort_by_key(|(key, _)| key.span().start);
            for (key, value) in keys {
                let raw = Raw::from_toml(value.get_ref());
                let dotted = format!("{section_name}.{}", key.get_ref());
                self.set(&dotted, &raw, origin(key.span().start));
            }
        }
        Ok(())
    }

    fn variable(&mut self, name: &str, value: String) {
        let Some(path) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
            return;
        };
        let origin = Origin::Environment(name.to_owned());
        match path.split_once("__") {
            Some((section, key)) => {
                let dotted = format!("{section}.{key}").to_ascii_lowercase();
                self.set(&dotted, &Raw::Text(value), origin);
            }
            None => self.problems.push(
                Problem::rule(
                    name,
                    format!(
                        "{name} names no key: {ENVIRONMENT_PREFIX}<SECTION>__<KEY> is expected"
                    ),
                )
                .at(origin),
            ),
        }
    }

    fn set(&mut self, dotted: &str, raw: &Raw, origin: Origin) {
        let problem = match self.try_set(dotted, raw) {
            Ok(()) => {
                self.origins.insert(dotted.to_owned(), origin);
                return;
            }
            Err(problem) => problem,
        };
        self.problems.push(problem.at(origin));
    }

    fn try_set(&mut self, dotted: &str, raw: &Raw) -> Result<(), Problem> {
        let Some((section, key)) = dotted.split_once('.') else {
            return Err(Problem::rule(
                dotted,
                format!("{dotted} names no key: section.key is expected"),
            ));
        };
        let mut sections = self.config.sections_mut();
        let Some(found) = sections.iter_mut().find(|s| s.name() == section) else {
            return Err(self.unknown_section(section));
        };
        match found.set(key, raw) {
            Ok(()) => Ok(()),
            Err(SetError::Allowed(allowed)) => Err(Problem::value(dotted, &raw.literal(), allowed)),
            Err(SetError::NoSuchKey) => Err(self.unknown_key(section, key)),
        }
    }

    fn known_section(&self, name: &str) -> Option<&'static str> {
        self.config
            .sections()
            .iter()
            .map(|section| section.name())
            .find(|known| *known == name)
    }

    fn unknown_section(&self, name: &str) -> Problem {
        let names = self.config.sections().map(|section| section.name());
        let hint = match nearest(name, names) {
            Some(near) => format!("did you mean [{near}]?"),
            None => format!("sections are {}", names.join(", ")),
        };
        Problem::rule(name, format!("unknown section [{name}] ({hint})"))
    }

    /// Names the nearest key: of the same section, else the key of that name elsewhere, else all of the section.
    fn unknown_key(&self, section: &str, key: &str) -> Problem {
        let sections = self.config.sections();
        let own = sections
            .iter()
            .find(|s| s.name() == section)
            .map_or(&[][..], |s| s.keys());
        let elsewhere = sections.iter().find(|s| s.keys().contains(&key));
        let hint = match (elsewhere, nearest(key, own.iter().copied())) {
            (Some(other), _) => format!("did you mean {}.{key}?", other.name()),
            (None, Some(near)) => format!("did you mean {section}.{near}?"),
            (None, None) => format!("keys of [{section}] are {}", own.join(", ")),
        };
        let dotted = format!("{section}.{key}");
        Problem::rule(&dotted, format!("unknown key {dotted} ({hint})"))
    }
}

fn error_start(error: &toml::de::Error) -> usize {
    error.span().map_or(0, |span| span.start)
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}

fn column_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit_once('\n').map_or(before, |(_, line)| line);
    line.chars().count() + 1
}

/// Start of the environment variables that belong to the configuration.
pub const ENVIRONMENT_PREFIX: &str = "THALWEG__";
