// SPDX-License-Identifier: Apache-2.0

package config

// Show is the effective configuration as YAML, with the origin of each value as a comment: its place in the
// file, a variable, the default, or the key that it is inherited from. Secrets are hidden.
func (c *Config) Show() []byte { return grammar.Show(c, c.tree) }

// ShowJSON is the same as a JSON object with the members file, values and origins.
func (c *Config) ShowJSON() ([]byte, error) { return grammar.ShowJSON(c, c.tree) }

// Schema is the JSON Schema of consumers.yaml.
func Schema() ([]byte, error) { return grammar.Schema() }

// Reference is the Markdown page with every key of consumers.yaml.
func Reference() []byte { return grammar.Reference() }
