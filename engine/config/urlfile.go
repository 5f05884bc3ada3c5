// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
)

// ReadURLFile gives the Database its URL from url_file, where that is written. Whoever connects calls it
// once before; validating does not, since the machine that validates seldom has the file. The problems stand
// at the place of the key, and hold nothing of the file.
func (c *Config) ReadURLFile() problem.List {
	const path = "database.url_file"
	if c.Database.URLFile == "" || c.Database.URL != "" {
		return nil
	}
	refuse := func(code, what, fix string) problem.List {
		return problem.List{{At: c.At(path), Severity: problem.Error, Code: code, What: path + " names a file, and " + what, Fix: fix}}
	}
	text, found := document.ReadFile(c.beside(c.Database.URLFile), "database_url")
	if found != nil {
		fix := found.Fix
		if found.Code == "no-file" {
			fix = "write a path that is absolute, or seen from the folder of " + c.File()
		}
		return refuse(found.Code, found.What, fix)
	}
	url := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(text) > document.MaxSize:
		return refuse("file-too-large", fmt.Sprintf("it is larger than %d bytes", document.MaxSize), "name the file that holds the url")
	case !utf8.ValidString(url):
		return refuse("bad-encoding", "it is not UTF-8", "write the url into it as UTF-8")
	case strings.TrimSpace(url) == "":
		return refuse("empty-file", "it holds no url", "write the url into it, on one line")
	}
	if why, fix := databaseURL(url); why != "" {
		if fix == "" {
			fix = formats["database_url"].Fix
		}
		return refuse("bad-url", "it holds a text "+why, fix)
	}
	c.Database.URL = Secret(url)
	return nil
}

// beside is a path as it is seen from the folder of the configuration.
func (c *Config) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	folder := "."
	if c.tree != nil && c.File() != "-" {
		folder = filepath.Dir(c.File())
	}
	return folder + string(filepath.Separator) + path // not joined: "-" alone would be the standard input
}
