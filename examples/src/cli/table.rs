//! Text in columns.

use std::fmt::Write as _;

use super::console::printable;

/// Rows below a head, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The head of a column and the side at which its cells stand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    /// Text.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

impl Table {
    pub(crate) fn new(head: impl Into<Vec<Column>>) -> Self {
        Self {
            head: head.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells without a column are left out.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| printable(&cell));
        self.rows.push(cells.take(self.head.len()).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each with a line end and without trailing blanks.
    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = self
            .head
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = self.rows.iter().filter_map(|row| row.get(index));
                cells
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(column.name().len())
            })
            .collect();
        let mut text = String::new();
        let head: Vec<String> = self
            .head
            .iter()
            .map(|column| column.name().to_owned())
            .collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, column), &width) in row.iter().zip(&self.head).zip(&widths) {
                // Writing to a string cannot fail.
                let _ = match column {
                    Column::Left(_) => write!(line, "{cell:<width$}  "),
                    Column::Right(_) => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Left(name) | Self::Right(name) => name,
        }
    }
}

/// `label:  value` lines with the values in one column.
pub(crate) fn labelled(lines: &[(&str, String)]) -> String {
    let width = lines
        .iter()
        .map(|(label, _)| label.len() + 1)
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (label, value) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:width$}  {}", format!("{label}:"), printable(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_cannot_control_the_terminal() {
        let mut table = Table::new([Column::Left("name"), Column::Right("n"), Column::Left("x")]);
        assert!(table.is_empty());
        table.row(["a\u{e4}\u{1b}".to_owned(), "10".to_owned(), String::new()]);
        table.row([
            "b".to_owned(),
            "9".to_owned(),
            "z".to_owned(),
            "dropped".to_owned(),
        ]);
        assert_eq!(
            table.render(),
            "name       n  x\na\u{e4}\\u{1b}  10\nb          9  z\n"
        );
    }

    #[test]
    fn labels_are_padded() {
        let lines = [("job", "x".to_owned()), ("parallelism", "4".to_owned())];
        assert_eq!(labelled(&lines), "job:          x\nparallelism:  4\n");
    }
}
