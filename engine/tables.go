// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os"
	"path/filepath"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/document"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/problem"
)

// TableReport is what was found in tables and their cases.
type TableReport struct {
	Tables   []string // the machines that may run, by name
	Cases    int      // that were played
	Paths    int      // of all tables that may run
	Problems problem.List
}

// CheckTables proves the tables that this binary carries.
func CheckTables() TableReport {
	table, problems := Table()
	return tableReport(TableReport{}, table, problems)
}

// CheckDefinitions proves the tables of a folder.
func CheckDefinitions(dir string) TableReport {
	var r TableReport
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		at := problem.Position{File: dir, Line: 1, Col: 1}
		r.Problems = problem.List{{At: at, Severity: problem.Error, Code: "no-table", What: "the folder holds no table", Fix: "name a folder with files *.yaml"}}
		if _, err := os.Stat(dir); err != nil {
			r.Problems[0].What, r.Problems[0].Code = "there is no such folder", "no-file"
		}
		return r
	}
	for _, file := range files {
		text, found := document.ReadFile(file, "round.yaml")
		if found != nil {
			r.Problems = append(r.Problems, *found)
			continue
		}
		table, problems := machine.Load(file, text, consumer.Vocabulary())
		r = tableReport(r, table, problems)
	}
	return r
}

func tableReport(r TableReport, table *machine.Machine, problems problem.List) TableReport {
	r.Problems = append(r.Problems, problems...)
	if table != nil && problems.Errors() == 0 {
		r.Tables = append(r.Tables, "round")
	}
	return r
}
