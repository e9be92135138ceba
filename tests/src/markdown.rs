//! Pages of the documents, of which tests take what they show.

/// The code blocks of a language, without what they are indented by.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == fence {
            let indent = line.len() - fence.len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            found.push(block.map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_stands_between_its_fences_less_their_indent() {
        let page = "```sh\nno\n```\n1. in a list\n   ```toml\n   a = 1\n\n     b = 2\n   ```\ntext\n```toml\nc = 3\n```\n";
        assert_eq!(blocks(page, "toml"), ["a = 1\n\n  b = 2\n", "c = 3\n"]);
        assert_eq!(blocks(page, "ini"), [""; 0]);
    }
}
