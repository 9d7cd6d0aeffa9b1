//! A mixed-integer program as a plain value, independent of any solver: maximise the gain under rows.

/// A variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MilpVariable {
    /// Smallest value.
    pub lower: f64,
    /// Largest value.
    pub upper: f64,
    /// Whether only whole numbers are allowed.
    pub integer: bool,
    /// Gain of one unit.
    pub gain: f64,
}

/// A row: `lower ≤ Σ terms ≤ upper`; a bound may be infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct MilpRow {
    /// Variable and factor; each variable once.
    pub terms: Vec<(usize, f64)>,
    /// Smallest sum.
    pub lower: f64,
    /// Largest sum.
    pub upper: f64,
}

/// A value for each variable.
pub type Assignment = Vec<f64>;

/// The program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Milp {
    /// Variables.
    pub variables: Vec<MilpVariable>,
    /// Rows.
    pub rows: Vec<MilpRow>,
}

impl Milp {
    /// Adds a variable and returns its index.
    pub fn add_variable(&mut self, variable: MilpVariable) -> usize {
        self.variables.push(variable);
        self.variables.len() - 1
    }

    /// Adds `Σ terms ≤ upper`.
    pub fn add_at_most(&mut self, terms: Vec<(usize, f64)>, upper: f64) {
        self.rows.push(MilpRow { terms, lower: f64::NEG_INFINITY, upper });
    }

    /// Adds `Σ terms = value`.
    pub fn add_equality(&mut self, terms: Vec<(usize, f64)>, value: f64) {
        self.rows.push(MilpRow { terms, lower: value, upper: value });
    }

    /// The gain of an assignment.
    pub fn total_gain(&self, values: &[f64]) -> f64 {
        self.variables.iter().zip(values).map(|(variable, value)| variable.gain * value).sum()
    }

    /// Whether an assignment keeps all bounds, rows and integrality within `tolerance`.
    pub(crate) fn is_feasible(&self, values: &[f64], tolerance: f64) -> bool {
        let within =
            |value: f64, lower: f64, upper: f64| value >= lower - tolerance && value <= upper + tolerance;
        let sum =
            |row: &MilpRow| row.terms.iter().filter_map(|(v, f)| Some(f * values.get(*v)?)).sum::<f64>();
        values.len() == self.variables.len()
            && self.variables.iter().zip(values).all(|(variable, value)| {
                within(*value, variable.lower, variable.upper)
                    && (!variable.integer || (value - value.round()).abs() <= tolerance)
            })
            && self.rows.iter().all(|row| within(sum(row), row.lower, row.upper))
    }
}
