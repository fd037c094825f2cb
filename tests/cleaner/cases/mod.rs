//! The format of cleaner cases: what a case does, and what is right after each action.

pub mod player;
pub mod render;

/// One action of a case, and what is right after it.
#[derive(Debug, Default)]
pub struct Step {
    pub action: String,
    pub kafka: Vec<String>,
    pub tidelog: Option<Vec<String>>,
}

/// One case.
#[derive(Debug)]
pub struct Case {
    pub file: String,
    pub name: String,
    pub defaults: String,
    pub steps: Vec<Step>,
}

impl Step {
    /// What is right for tidelog.
    pub fn expected(&self) -> &[String] {
        self.tidelog.as_deref().unwrap_or(&self.kafka)
    }
}

/// The cases in the text of a file.
pub fn parse(file: &str, text: &str) -> Vec<Case> {
    let (mut cases, mut defaults): (Vec<Case>, String) = (Vec::new(), String::new());
    for line in text.lines().map(str::trim) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, cases.last_mut().and_then(|case| case.steps.last_mut())) {
            ("" | "#" | "why", _) => {}
            ("defaults", _) => defaults = rest.to_owned(),
            ("case", _) => cases.push(Case {
                file: file.to_owned(),
                name: rest.to_owned(),
                defaults: defaults.clone(),
                steps: Vec::new(),
            }),
            (">", Some(step)) => step.kafka.push(rest.trim_start().to_owned()),
            ("!", Some(step)) => {
                step.tidelog.get_or_insert_default().push(rest.trim_start().to_owned());
            }
            _ => {
                let step = Step { action: line.to_owned(), ..Step::default() };
                cases.last_mut().expect("a case comes first").steps.push(step);
            }
        }
    }
    cases
}
