//! A Markdown table whose columns line up.

/// Headers and rows of text; the first column is left-aligned, all others right.
#[derive(Debug, Clone)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(headers: &[&str]) -> Self {
        Self { headers: headers.iter().map(|header| (*header).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.headers.len(), String::new());
        for cell in &mut cells {
            *cell = cell.replace('|', "\\|");
        }
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as Markdown.
    #[must_use]
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.headers.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells
                    .chain(self.headers.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(4)
            })
            .collect();
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                let padding = " ".repeat(width - cell.chars().count());
                if column == 0 { format!(" {cell}{padding} ") } else { format!(" {padding}{cell} ") }
            });
            format!("|{}|\n", padded.collect::<Vec<_>>().join("|"))
        };
        let rule = widths.iter().enumerate().map(|(column, width)| {
            if column == 0 { "-".repeat(width + 2) } else { format!("{}:", "-".repeat(width + 1)) }
        });
        let mut out = line(&self.headers);
        out.push_str(&format!("|{}|\n", rule.collect::<Vec<_>>().join("|")));
        self.rows.iter().for_each(|row| out.push_str(&line(row)));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up_and_bars_are_escaped() {
        let mut table = Table::new(&["test", "rate"]);
        table.row(vec!["a|b".to_owned(), "102,183".to_owned()]);
        table.row(vec!["long name".to_owned()]);
        let lines: Vec<String> = table.render().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "| test      |    rate |");
        assert_eq!(lines[1], "|-----------|--------:|");
        assert_eq!(lines[2], "| a\\|b      | 102,183 |");
        assert_eq!(lines[3], "| long name |         |");
    }
}
