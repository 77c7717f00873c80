//! What a word is: a maximal run of [`char::is_alphanumeric`], in lower case by [`str::to_lowercase`].

/// Calls `each` for every word of a text that is mostly UTF-8; bytes that are not count as separators.
///
/// `scratch` is reused between calls.
pub(super) fn for_each_word(text: &[u8], scratch: &mut String, mut each: impl FnMut(&str)) {
    for chunk in text.utf8_chunks() {
        for word in chunk
            .valid()
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
        {
            if word.is_ascii() {
                scratch.clear();
                scratch.push_str(word);
                scratch.make_ascii_lowercase();
                each(scratch);
            } else {
                each(&word.to_lowercase());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        for_each_word(text, &mut String::new(), |word| found.push(word.to_owned()));
        found
    }

    #[test]
    fn words_are_lower_case_runs_of_letters_and_digits() {
        assert_eq!(
            words(b"Hello, World! it's 42x"),
            ["hello", "world", "it", "s", "42x"]
        );
        assert_eq!(
            words("Straße ÄÖÜ 北京 naïve".as_bytes()),
            ["straße", "äöü", "北京", "naïve"]
        );
        assert_eq!(
            words("ΟΔΟΣ".as_bytes()),
            ["οδος"],
            "a final sigma is lowered as in str::to_lowercase"
        );
        assert!(words(b" .,;- ").is_empty());
    }

    #[test]
    fn bytes_that_are_not_utf8_separate_words() {
        assert_eq!(words(b"ab\xffcd \xe4\xb8"), ["ab", "cd"]);
    }

    #[test]
    fn the_result_equals_lossy_decoding() {
        let text = b"x\xf0\x9f\x98y \xc3\xa4\xffb\xe2\x82";
        let lossy = String::from_utf8_lossy(text).into_owned();
        assert_eq!(words(text), words(lossy.as_bytes()));
    }
}
