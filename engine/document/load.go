// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"example.com/bothy/engine/problem"
)

// MaxSize is the largest file that is read, in bytes. It is checked before anything is parsed.
const MaxSize = 4 << 20

// ReadFile gives the text of a file; "-" is standard input. It looks before it opens, so that a directory,
// a named pipe or a device is a problem and never a wait, and it reads little more than MaxSize bytes. usual
// is how such a file is usually called.
func ReadFile(path, usual string) ([]byte, *problem.Problem) {
	text, found := read(path, usual)
	if found != nil {
		found.At = problem.Position{File: path, Line: 1, Col: 1}
		found.Severity = problem.Error
	}
	return text, found
}

// read gives the text of a file, or a problem that lacks only its position.
func read(path, usual string) ([]byte, *problem.Problem) {
	if path == "-" {
		return readFrom(os.Stdin)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case info.IsDir():
		return nil, &problem.Problem{Code: "not-a-file", What: "this is a directory", Fix: "name the file inside it, such as " + usual}
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
	return text, nil // Read refuses one that is too large
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
