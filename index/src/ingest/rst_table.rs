//! Which cells does a table of reStructuredText hold? Rows as text, cells parted by bars; borders say nothing.

use super::rst_line::Line;
use super::rst_markup::clean;

/// Rows of a grid table: borders part rows, bars part cells.
pub(super) fn grid_rows(lines: &[Line<'_>]) -> Vec<String> {
    let mut rows = Rows::default();
    for line in lines {
        match line.text.strip_prefix('|') {
            Some(text) => {
                rows.line(text.strip_suffix('|').unwrap_or(text).split('|').map(str::to_string).collect());
            }
            None => rows.end_row(),
        }
    }
    rows.end()
}

/// Rows of a simple table, whose first line is its upper border: the border's runs are the columns, and a line with
/// nothing in its first column continues the row above.
pub(super) fn simple_rows(lines: &[Line<'_>]) -> Vec<String> {
    let Some(border) = lines.first() else { return Vec::new() };
    let mut previous = ' ';
    let mut starts: Vec<usize> = Vec::new();
    for (column, sign) in border.text.chars().enumerate() {
        if sign == '=' && previous != '=' {
            starts.push(column);
        }
        previous = sign;
    }
    let mut rows = Rows::default();
    for line in &lines[1..] {
        if line.is_blank() || line.text.chars().all(|sign| "=- ".contains(sign)) {
            rows.end_row();
            continue;
        }
        let lead = line.indent.saturating_sub(border.indent);
        let signs: Vec<char> = std::iter::repeat_n(' ', lead).chain(line.text.chars()).collect();
        let cell = |at: usize| -> String {
            let from = starts[at].min(signs.len());
            let to = starts.get(at + 1).map_or(signs.len(), |next| (*next).min(signs.len()));
            signs[from..to].iter().collect()
        };
        let cells: Vec<String> = (0..starts.len()).map(cell).collect();
        if cells.first().is_some_and(|first| !first.trim().is_empty()) {
            rows.end_row();
        }
        rows.line(cells);
    }
    rows.end()
}

#[derive(Default)]
struct Rows {
    done: Vec<String>,
    open: Vec<String>,
}

impl Rows {
    /// Adds a line's cells to the cells of the open row.
    fn line(&mut self, cells: Vec<String>) {
        for (at, cell) in cells.into_iter().enumerate() {
            if at == self.open.len() {
                self.open.push(String::new());
            }
            let text = cell.trim();
            if !self.open[at].is_empty() && !text.is_empty() {
                self.open[at].push(' ');
            }
            self.open[at].push_str(text);
        }
    }

    fn end_row(&mut self) {
        // Markup may run over the lines of a cell, so it is cleaned when the cell is whole.
        let cells: Vec<String> =
            self.open.drain(..).filter(|cell| !cell.is_empty()).map(|cell| clean(&cell)).collect();
        if !cells.is_empty() {
            self.done.push(cells.join(" | "));
        }
    }

    fn end(mut self) -> Vec<String> {
        self.end_row();
        self.done
    }
}
