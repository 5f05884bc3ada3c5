// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/diagram"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/problem"
)

// maxTableFile is the largest file of a definitions folder that is read, in bytes.
const maxTableFile = 1 << 20

// maxTableFiles is how many files of a definitions folder are read.
const maxTableFiles = 200

// TableReport is what was found in tables and their cases.
type TableReport struct {
	Tables   []string // the machines that may run, by name
	Cases    int      // that were played
	Paths    int      // of all tables that may run
	Problems problem.List
}

// vocabularies are what the tables of this program may say, one for each machine.
func vocabularies() []machine.Vocabulary {
	return []machine.Vocabulary{consumer.Vocabulary(), finalize.Vocabulary()}
}

// CheckTables proves the tables that this binary carries and plays their cases.
func CheckTables() TableReport { return report(checkEmbedded()) }

// CheckDefinitions does the same with the tables of a folder: each file *.yaml is a table, and *.cases.yaml
// beside it holds its cases. They are held to the same promises as those that the binary carries.
func CheckDefinitions(dir string) TableReport { return report(checkFolder(dir)) }

// Machines are the tables of a folder that may run, or those of this binary when dir is "". The list holds an
// error when a table may not run.
func Machines(dir string) ([]*machine.Machine, problem.List) {
	r := checkEmbedded()
	if dir != "" {
		r = checkFolder(dir)
	}
	return r.Machines, r.Problems
}

func report(r machine.Report) TableReport {
	made := TableReport{Cases: r.Cases, Paths: r.Paths, Problems: r.Problems}
	for _, m := range r.Machines {
		made.Tables = append(made.Tables, m.Name())
	}
	return made
}

func checkEmbedded() machine.Report {
	var sources []machine.Source
	for _, given := range []func() (string, []byte){definitions.Round, definitions.RoundCases, definitions.Restore, definitions.RestoreCases} {
		file, text := given()
		sources = append(sources, machine.Source{File: file, Text: text})
	}
	return machine.Check("definitions", sources, vocabularies()...)
}

func checkFolder(dir string) machine.Report {
	names, found := tableFiles(dir)
	if found != nil {
		return machine.Report{Problems: problem.List{*found}}
	}
	var sources []machine.Source
	var unread problem.List
	for _, name := range names {
		text, found := readTable(name)
		if found != nil {
			unread = append(unread, *found)
			continue
		}
		sources = append(sources, machine.Source{File: name, Text: text})
	}
	if len(sources) == 0 && len(unread) > 0 {
		return machine.Report{Problems: unread}
	}
	r := machine.Check(dir, sources, vocabularies()...)
	r.Problems = append(r.Problems, unread...)
	r.Problems.Sort()
	return r
}

// unreadable is a problem with a file or a folder as a whole.
func unreadable(file, code, what, fix string) *problem.Problem {
	return &problem.Problem{At: problem.Position{File: file, Line: 1, Col: 1}, Severity: problem.Error, Code: code, What: what, Fix: fix}
}

// cannotRead is the problem of a file or a folder that the system does not give.
func cannotRead(name string, err error) *problem.Problem {
	if errors.Is(err, fs.ErrNotExist) {
		return unreadable(name, "no-file", "there is no such file or folder", "check the path, seen from the directory that the command runs in")
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the path is printed before it
	}
	return unreadable(name, "unreadable-file", fmt.Sprintf("it cannot be read: %v", err), "make it readable for the user that runs this command")
}

// tableFiles are the files *.yaml of a folder, sorted.
func tableFiles(dir string) ([]string, *problem.Problem) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, cannotRead(dir, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yaml") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	if len(names) > maxTableFiles {
		return nil, unreadable(dir, "too-large", fmt.Sprintf("the folder holds %d tables and files of cases, and at most %d are read", len(names), maxTableFiles), "name a folder that holds tables only")
	}
	return names, nil
}

// readTable gives the text of a file. It looks before it opens, so that a directory or a pipe is a problem and
// never a wait, and reads no more of a large file than it takes to refuse it.
func readTable(name string) ([]byte, *problem.Problem) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, cannotRead(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, unreadable(name, "not-a-file", "this is a directory, a pipe, a socket or a device, not a file", "remove it from the folder, or give it a name that does not end in .yaml")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, cannotRead(name, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxTableFile+1))
	if err != nil {
		return nil, cannotRead(name, err)
	}
	return text, nil
}

// shown is a table that pages are made of, with its cases.
type shown struct {
	table func() (*machine.Machine, problem.List)
	cases func() (string, []byte)
}

var (
	shownRound   = shown{Table, definitions.RoundCases}
	shownRestore = shown{RestoreTable, definitions.RestoreCases}
)

// RoundReference is the page docs/reference/round.md: the round table path by path.
func RoundReference() ([]byte, error) { return shownRound.reference() }

// RoundPicture is docs/reference/round.svg: the round table as a picture.
func RoundPicture() ([]byte, error) { return shownRound.picture() }

// RoundExplained is the page docs/round.md with what is generated in it made anew: page is its text.
func RoundExplained(page []byte) ([]byte, error) { return shownRound.explained(page) }

// RestoreReference is the page docs/reference/restore.md: the restore table path by path.
func RestoreReference() ([]byte, error) { return shownRestore.reference() }

// RestorePicture is docs/reference/restore.svg: the restore table as a picture.
func RestorePicture() ([]byte, error) { return shownRestore.picture() }

// RestoreExplained is the page docs/restore.md with what is generated in it made anew: page is its text.
func RestoreExplained(page []byte) ([]byte, error) { return shownRestore.explained(page) }

func (s shown) source() machine.Source {
	file, text := s.cases()
	return machine.Source{File: file, Text: text}
}

func (s shown) reference() ([]byte, error) {
	m, problems := s.table()
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return machine.Page(m, s.source()), nil
}

func (s shown) picture() ([]byte, error) {
	m, problems := s.table()
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return diagram.Draw(m, diagram.SVG)
}

func (s shown) explained(page []byte) ([]byte, error) {
	m, problems := s.table()
	if err := problems.Err(); err != nil {
		return nil, err
	}
	picture, err := diagram.Draw(m, diagram.Mermaid)
	if err != nil {
		return nil, err
	}
	paths, _ := m.Paths()
	whole := slices.DeleteFunc(paths, machine.Path.BreaksOff)
	page, err = between(page, "diagram", "```mermaid\n"+string(picture)+"```\n")
	if err != nil {
		return nil, err
	}
	return between(page, "paths", machine.PathTable(whole, m.CaseNames(s.source())))
}

// between puts text between the two comments of a page that hold the place of what is generated.
func between(page []byte, name, text string) ([]byte, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("the page has no place for %s: the lines %q and %q", name, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return []byte(before + begin + "\n" + text + "\n" + end + after), nil
}
