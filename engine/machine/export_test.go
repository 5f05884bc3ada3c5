// SPDX-License-Identifier: Apache-2.0

package machine

// roundVocabulary is what the program behind round.yaml declares. Its room imports this one, so the outer
// test package hands it in.
var roundVocabulary func() Vocabulary

// UseRound sets the vocabulary of round.yaml for the tests of this package.
func UseRound(v func() Vocabulary) { roundVocabulary = v }

// restoreVocabulary is what the program behind restore.yaml declares.
var restoreVocabulary func() Vocabulary

// UseRestore sets the vocabulary of restore.yaml for the tests of this package.
func UseRestore(v func() Vocabulary) { restoreVocabulary = v }
