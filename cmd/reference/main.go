// SPDX-License-Identifier: Apache-2.0

// Command reference writes the pages of docs/reference from what the rooms declare:
//
//	go generate ./...
package main

//go:generate go run .

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/expect"
	"example.com/bothy/engine/telemetry"
)

// folder holds the pages, and nothing else; a page elsewhere is generated in part.
const folder = "docs/reference"

// page is one generated file, by its path from the folder. root is where the repository is.
type page struct {
	path string
	text func(root string) ([]byte, error)
}

// pages lists every page. A room that declares something adds a row.
func pages() []page {
	return []page{
		{"configuration.md", func(string) ([]byte, error) { return config.Reference(), nil }},
		{"consumers.test.schema.json", func(string) ([]byte, error) { return expect.Schema() }},
		{"consumers.schema.json", func(string) ([]byte, error) { return config.Schema() }},
		{"problems.md", problems},
		{"round.md", func(string) ([]byte, error) { return engine.RoundReference() }},
		{"restore.md", func(string) ([]byte, error) { return engine.RestoreReference() }},
		{"restore.svg", func(string) ([]byte, error) { return engine.RestorePicture() }},
		{"../restore.md", explained("restore.md", engine.RestoreExplained)},
		{"../round.md", explained("round.md", engine.RoundExplained)},
		{"../signals.md", func(string) ([]byte, error) { return telemetry.Page(), nil }},
		{"round.svg", func(string) ([]byte, error) { return engine.RoundPicture() }},
		{"tests.md", func(string) ([]byte, error) { return expect.Reference(), nil }},
	}
}

// explained is a page of docs of which the picture and the paths of a table are generated.
func explained(name string, fill func(page []byte) ([]byte, error)) func(root string) ([]byte, error) {
	return func(root string) ([]byte, error) {
		page, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			return nil, err
		}
		return fill(page)
	}
}

func main() {
	root, err := findRoot()
	if err == nil {
		err = write(root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// findRoot goes up from the working directory to the folder that holds go.mod.
func findRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("no go.mod above the working directory: run go generate inside the repository")
		}
		at = up
	}
}

// write writes every page that has changed.
func write(root string) error {
	if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
		return err
	}
	for _, p := range pages() {
		text, err := p.text(root)
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		file := filepath.Join(root, folder, p.path)
		if before, err := os.ReadFile(file); err == nil && string(before) == string(text) {
			continue
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
