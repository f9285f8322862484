// Looks at the Helm chart of packaging/chart as helm renders it and as a cluster would take it, without
// either.
//
//	chart-test check CHART KELIX             all checks, a line each: `ok    WHAT` or `FAIL  WHAT: why`
//	chart-test render CHART VALUES           what is rendered with these values (YAML), as a list in JSON
//	chart-test example CHART FILE            the objects of a file below examples/, as such a list
//
// helm's own packages render and lint, and refuse values by the schema. What comes of it is decoded strictly
// and judged by the code of Kubernetes' API server, and then by the rules of rules.go. broken.go breaks the
// chart in ways that each of them has to notice.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

func main() {
	usage := "chart-test check CHART KELIX | chart-test render CHART VALUES | chart-test example CHART FILE"
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	source, err := readSource(os.Args[2])
	if err == nil {
		switch os.Args[1] {
		case "check":
			err = check(source, os.Args[2], os.Args[3])
		case "render":
			var rendered *rendered
			if rendered, err = source.render(os.Args[3]); err == nil {
				err = print(rendered.documents)
			}
		case "example":
			var documents []document
			if documents, err = decode(source["examples/"+os.Args[3]]); err == nil {
				err = print(documents)
			}
		default:
			err = errors.New(usage)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart-test:", err)
		os.Exit(1)
	}
}

func print(documents []document) error {
	objects := []any{}
	for _, document := range documents {
		objects = append(objects, document.fields)
	}
	return json.NewEncoder(os.Stdout).Encode(objects)
}

// report prints the line of a check, and what was found instead.
func report(what string, problems []string) {
	if len(problems) == 0 {
		fmt.Println("ok   ", what)
		return
	}
	fmt.Printf("FAIL  %s: %s\n", what, problems[0])
	for _, problem := range problems[1:] {
		fmt.Println("     ", problem)
	}
}

func check(source source, folder, program string) error {
	known, err := askProgram(program)
	if err != nil {
		return err
	}
	report("helm lint finds nothing", lint(folder))
	for _, set := range valueSets {
		report("rendered with "+set.name, judge(source, set.values, known))
	}
	for _, bad := range badValues {
		report("refused: "+bad.name, refused(source, bad))
	}
	report("noticed: what helm lint tells", lintNotices(source))
	for _, broken := range brokenCharts {
		report("noticed: "+broken.name, noticed(source, broken, known))
	}
	return nil
}
