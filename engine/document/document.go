// SPDX-License-Identifier: Apache-2.0

// Package document owns the way from the text of a YAML file to the fields of a struct: strictly, with a
// position for every value and with all problems of a file in one run.
//
//	text --source--> yaml.Node tree --reader--> struct + Tree (positions) --rules--> struct, or problems
//
// A key is declared once, as a field of a struct. Its tags say all there is to say about it:
//
//	yaml      the key
//	default   the text that an absent key stands for
//	inherit   the path of the key that an absent key takes its value from (consumer.batch_size)
//	validate  what it may be: the rules of go-playground/validator that a Grammar's Formats add to
//	word      a scalar that may stand in place of a mapping (see Choice) or of a list (which is then empty)
//	apart     how to mend a mapping that holds two keys of a Choice
//	unit      what a count counts
//	doc       what it is for, as a sentence
//	since     the first released version that knows the key
//
// A field is a text (string), a text that must not be seen (Secret), a count (int, int64), a duration, a
// switch (bool), any value (Value), a struct of such fields, or a list or a map of one of these. Reading,
// defaults, ranges, did-you-mean lists, the JSON Schema and the reference page come from these tags.
//
// It refuses what it does not know: an unknown key, a key written twice, a number that two YAML readers
// would read differently, a duration without a unit, a second document. It knows no table and no database,
// and it opens nothing but the file.
package document

import (
	"reflect"
	"sync"

	"github.com/go-playground/validator/v10"

	"example.com/bothy/engine/problem"
)

// Lookup gives the value of an environment variable, as os.LookupEnv does.
type Lookup = func(name string) (value string, set bool)

// Grammar is what one kind of file may hold: the tagged struct T, and what its tags refer to. It is built
// once, as a variable; what it learns of T is kept, and it is safe for many goroutines.
type Grammar[T any] struct {
	Name    string            // the usual name of such a file: consumers.yaml
	About   string            // what such a file is for, as a sentence, for the pages made of the grammar
	Begin   string            // what to write into an empty one: "version: 1 and at least one consumer"
	Formats map[string]Format // the rules that a validate tag may name beside those of the validator
	Check   func(*T, *Tree)   // the rules that concern more than one value; called when the whole file was read

	once  sync.Once
	shape *shape
}

// Format is a rule on a text that a validate tag names.
type Format struct {
	Code    string // of the problem
	Fix     string // what to do, when Trouble has nothing better
	Example string // a good text, as YAML
	Pattern string // a regular expression that every good text matches, for a schema; may be empty
	// Trouble says why a text is not of the format, and optionally what to do. The first result is empty for
	// a good text. It never repeats the text: that may be secret.
	Trouble func(text string) (why, fix string)
	// Place, for a text of many lines, is the character of a bad text that the trouble begins at, counted from 0,
	// or -1. Without it the trouble concerns the whole text.
	Place func(text string) int
}

// Choice is a struct of which exactly one key is written, or the word of its tag in place of the mapping.
// Choose is told which.
type Choice interface{ Choose(key string) }

// shape is a grammar without its type.
type shape struct {
	name, about, begin string
	root               reflect.Type
	formats            map[string]Format
	rules              *validator.Validate
	known              func() []string        // the path of every key
	open               func() map[string]bool // see Shown
}

func (g *Grammar[T]) compiled() *shape {
	g.once.Do(func() {
		root := reflect.TypeFor[T]()
		g.shape = &shape{
			name: g.Name, about: g.About, begin: g.Begin, root: root, formats: g.Formats, rules: rulesOf(g.Formats),
			known: sync.OnceValue(func() []string { return knownKeys(root, "") }),
			open:  sync.OnceValue(func() map[string]bool { return openKeys(root) }),
		}
	})
	return g.shape
}

// Load reads and checks the file at path; "-" is standard input. It looks before it opens, so that a
// directory, a named pipe or a device is a problem and never a wait. The rest is as with Read.
func (g *Grammar[T]) Load(path string, lookup Lookup) (*T, *Tree, problem.List) {
	text, found := ReadFile(path, g.Name)
	if found != nil {
		return nil, newReader(path, lookup, g.compiled()).Tree, problem.List{*found}
	}
	return g.Read(path, text, lookup)
}

// Read reads and checks a file that is already in memory; file is its name in the problems.
//
// lookup gives the value of ${NAME}. Without it, the file is checked as it stands: a variable is a warning,
// and its value is taken as good.
//
// The value is nil when the list holds an error; with warnings alone it is complete. The Tree is never nil.
func (g *Grammar[T]) Read(file string, text []byte, lookup Lookup) (*T, *Tree, problem.List) {
	return g.read(newReader(file, lookup, g.compiled()), text)
}

// Preview reads a file on a machine that need not run it: a variable that lookup does not know is a warning, and
// its value is taken as good. The rest is as with Read.
func (g *Grammar[T]) Preview(file string, text []byte, lookup Lookup) (*T, *Tree, problem.List) {
	r := newReader(file, lookup, g.compiled())
	r.preview = true
	return g.read(r, text)
}

func (g *Grammar[T]) read(r *reader, text []byte) (*T, *Tree, problem.List) {
	into := new(T)
	if top := r.source(text); top != nil {
		r.marks = make(map[string]mark, min(values(top), maxNodes)) // growing it would cost more than all else
		v := reflect.ValueOf(into).Elem()
		fill(v)
		r.section(top, "", v)
		if r.nodes <= maxNodes { // else what was read is only a part
			r.inherit(v)
			r.check(into)
			if g.Check != nil {
				g.Check(into, r.Tree)
			}
		}
	}
	r.problems.Sort()
	if r.problems.Errors() > 0 {
		return nil, r.Tree, r.problems
	}
	return into, r.Tree, r.problems
}
