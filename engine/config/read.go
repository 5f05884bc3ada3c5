// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
)

// MaxSize is the largest file that is read, in bytes.
const MaxSize = document.MaxSize

var grammar = &document.Grammar[Config]{
	Name:    "consumers.yaml",
	About:   "What the Bothy engine is told: where the database is, and which consumers turn its events into River jobs.",
	Begin:   "version: 1 and at least one consumer",
	Formats: formats,
	Check:   check,
}

// Load reads and checks the file at path; "-" is standard input. It looks before it opens, so that a
// directory, a named pipe or a device is a problem and never a wait.
//
// lookup gives the value of an environment variable (os.LookupEnv). Without it, the file is checked as it
// stands: a variable is a warning, and its value is taken as good.
//
// The Config is nil when the list holds an error; with warnings alone it is complete.
func Load(path string, lookup document.Lookup) (*Config, problem.List) {
	return withTree(grammar.Load(path, lookup))
}

// Parse reads and checks a file that is already in memory; file is its name in the problems. The rest is
// as with Load.
func Parse(file string, text []byte, lookup document.Lookup) (*Config, problem.List) {
	return withTree(grammar.Read(file, text, lookup))
}

func withTree(cfg *Config, tree *document.Tree, problems problem.List) (*Config, problem.List) {
	if cfg != nil {
		cfg.tree = tree
	}
	return cfg, problems
}

// check applies the rules that concern more than one value, and trims the queries.
func check(cfg *Config, tree *document.Tree) {
	cfg.trim()
	sameNames(cfg, tree)
}

// trim takes from each query what the parentheses around it could not bear: a last semicolon, a comment.
func (c *Config) trim() {
	for i := range c.Consumers {
		rule := &c.Consumers[i].Recipients
		if query, why, _ := trimQuery(rule.Query); why == "" {
			rule.Query = query
		}
	}
}

// sameNames refuses two consumers of one name: they would share one cursor, and each would lose the events
// that the other took. The same job kind in two consumers is allowed: the tag of a job tells them apart.
func sameNames(cfg *Config, tree *document.Tree) {
	first := map[string]string{}
	for i, c := range cfg.Consumers {
		path := fmt.Sprintf("consumers[%d].name", i)
		if !tree.Sound(path) {
			continue
		}
		if before, known := first[c.Name]; known {
			tree.Refuse(path, "duplicate-name", fmt.Sprintf("%s is %s, and so is that of another consumer; both would move one cursor", path, tree.Quoted(path)),
				"give one of the two another name", before)
			continue
		}
		first[c.Name] = path
	}
}
