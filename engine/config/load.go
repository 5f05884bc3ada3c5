// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"example.com/bothy/engine/problem"
)

// MaxSize is the largest file that is read, in bytes. It is checked before anything is parsed.
const MaxSize = 1 << 20

// Load reads and checks the file at path; "-" is standard input. It looks before it opens, so that a
// directory, a named pipe or a device is a problem and never a wait.
//
// lookup gives the value of an environment variable (os.LookupEnv). Without it, the file is checked as it
// stands: a variable is a warning, and its value is taken as good.
//
// The Config is nil when the list holds an error; with warnings alone it is complete.
func Load(path string, lookup func(string) (string, bool)) (*Config, problem.List) {
	text, found := read(path)
	if found != nil {
		found.At = problem.Position{File: path, Line: 1, Col: 1}
		found.Severity = problem.Error
		return nil, problem.List{*found}
	}
	return Parse(path, text, lookup)
}

// read gives the text of a file, or a problem that lacks only its position.
func read(path string) ([]byte, *problem.Problem) {
	if path == "-" {
		return readFrom(os.Stdin)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case info.IsDir():
		return nil, &problem.Problem{Code: "not-a-file", What: "this is a directory", Fix: "name the file inside it, such as consumers.yaml"}
	case !info.Mode().IsRegular():
		return nil, &problem.Problem{
			Code: "not-a-file", What: "this is a pipe, a socket or a device, not a file", Fix: "name a file, or write - to read standard input",
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = file.Close() }() // opened for reading: nothing to lose
	return readFrom(file)
}

func readFrom(from io.Reader) ([]byte, *problem.Problem) {
	text, err := io.ReadAll(io.LimitReader(from, MaxSize+1))
	if err != nil {
		return nil, unreadable(err)
	}
	return text, nil // Parse refuses one that is too large
}

func unreadable(err error) *problem.Problem {
	if errors.Is(err, fs.ErrNotExist) {
		return &problem.Problem{
			Code: "no-file", What: "there is no such file", Fix: "check the path, seen from the directory that the command runs in",
		}
	}
	// The reason alone: the path is printed before it.
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	return &problem.Problem{
		Code: "unreadable-file", What: fmt.Sprintf("the file cannot be read: %v", err), Fix: "make it readable for the user that runs this command",
	}
}
