// SPDX-License-Identifier: Apache-2.0

package document

import "example.com/bothy/engine/problem"

// Kinds lists every kind of problem that a file of any grammar can have, by code.
func Kinds() []problem.Kind {
	return []problem.Kind{
		refusal("bad-choice", "A mapping takes one of some keys, and it holds none or several of them: which one counts would be a guess."),
		refusal("bad-count", "A value is no whole number in plain digits, or it is out of range. YAML readers disagree about all other spellings of a number, so none of them is taken."),
		refusal("bad-duration", "A value is no duration, or it is out of range. A number without a unit is refused: it would mean seconds to one reader and nanoseconds to another."),
		refusal("bad-encoding", "A file, or the value of a variable, is not UTF-8, so its text cannot be told from noise."),
		refusal("bad-key", "A key of the author's own is a number, a date or a word that some YAML readers take for something else than a text."),
		refusal("bad-merge", "A merge key << stands before something that cannot be merged, or merges a mapping into itself."),
		refusal("bad-switch", "A value is neither true nor false. Other words for them mean different things to different YAML readers."),
		refusal("bad-value", "A value that may be anything holds a number or a word that YAML readers take for different things."),
		refusal("bad-version", "The file is written for another version of the grammar than this program reads."),
		refusal("bad-word", "A value is not one of the words that its key takes."),
		refusal("bad-yaml", "The file is not YAML. The place is the first line that cannot be read together with the lines before it."),
		refusal("byte-order-mark", "A byte-order mark stands in the middle of the file, as when two files were joined."),
		refusal("control-character", "A character that no text should hold stands in the file."),
		refusal("duplicate-entry", "A list of texts holds one of them twice. Every such list is a set, so the second does nothing."),
		refusal("duplicate-key", "A mapping holds a key twice, and YAML readers disagree about which of them counts."),
		refusal("empty-file", "The file holds no value: it is empty, or nothing but comments."),
		refusal("empty-list", "A list holds no entry. Without the key the default would hold; what an empty list should mean is not clear."),
		refusal("empty-value", "A text, or the variable that gives it, is empty."),
		refusal("file-too-large", "The file is larger than any honest one. It is not parsed."),
		refusal("long-list", "A list or a mapping holds more entries than it may."),
		refusal("missing-key", "A key that has no default is missing."),
		refusal("missing-value", "A key has nothing after its colon. It does not fall back to the default: somebody may have meant to write something."),
		refusal("no-file", "The path leads to no file. Nothing falls back to defaults when the configuration cannot be found."),
		refusal("not-a-file", "The path leads to a directory, a pipe, a socket or a device. None of them is opened, so that nothing waits."),
		refusal("odd-blank", "A character that looks like a space, and is none to YAML, stands where an ordinary space was meant."),
		hint("odd-variable", "A value holds ${ without a plain name and a closing brace. It stays as written: ${NAME} is the only expansion."),
		refusal("second-document", "A second document begins in the file, and only the first one is read."),
		refusal("tab-indentation", "A line is indented with a tab, and YAML takes only spaces there."),
		refusal("too-many-aliases", "With its aliases written out the file would grow beyond any honest one. It is not read further."),
		refusal("unknown-key", "A key is not known at its place. It is not ignored: the setting that was meant would silently keep its default."),
		refusal("unreadable-file", "The file is there, and the user that runs the command may not read it, or reading it failed."),
		refusal("unset-variable", "A value names an environment variable that is not set. At start this is an error; where a file is only checked before it runs it is a warning, and the value is taken as good."),
		refusal("wrong-kind", "A text, a list or a mapping stands where another of the three is wanted."),
		refusal("yaml-tag", "A value has a YAML tag, and tags change what a text means."),
	}
}

func refusal(code, means string) problem.Kind {
	return problem.Kind{Code: code, Severity: problem.Error, Means: means}
}

func hint(code, means string) problem.Kind {
	return problem.Kind{Code: code, Severity: problem.Warning, Means: means}
}
