// SPDX-License-Identifier: Apache-2.0

package config

import (
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

// Preview reads and checks a file on a machine that need not run it: a variable that lookup does not know is a
// warning, and its value is taken as good. The rest is as with Load.
func Preview(file string, text []byte, lookup document.Lookup) (*Config, problem.List) {
	return withTree(grammar.Preview(file, text, lookup))
}

func withTree(cfg *Config, tree *document.Tree, problems problem.List) (*Config, problem.List) {
	if cfg != nil {
		cfg.tree = tree
	}
	return cfg, problems
}
