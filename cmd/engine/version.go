// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"example.com/bothy/migrations"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "prints the version of the engine and of its schema",
		Long: `version prints what this binary was built from, and the newest migration that it carries: a database that
needs a newer one refuses this binary.`,
		Example: "  engine version",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := newestMigration()
			if err != nil {
				return err
			}
			info, _ := debug.ReadBuildInfo() // nil only in a binary built without modules
			fmt.Fprintf(cmd.OutOrStdout(), "engine %s\nschema %s\n%s %s/%s\n", describe(info), schema, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// describe is the version of the module, and the commit where the build knows it.
func describe(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" {
		return "(devel)"
	}
	text := info.Main.Version
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if commit := settings["vcs.revision"]; commit != "" {
		text += " (" + commit[:min(len(commit), 12)]
		if settings["vcs.modified"] == "true" {
			text += ", with changes"
		}
		text += ")"
	}
	return text
}

// newestMigration is the number of the newest migration, without leading zeros.
func newestMigration() (string, error) {
	files, err := fs.Glob(migrations.Files, "*.sql") // sorted by name, so by number
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("look for the newest of %d migrations: %w", len(files), errors.Join(err, fs.ErrNotExist))
	}
	number, _, _ := strings.Cut(files[len(files)-1], "_")
	return strings.TrimLeft(number, "0"), nil
}
