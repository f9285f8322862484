package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	helmlint "helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/yaml"
)

const (
	releaseName = "kelix"
	namespace   = "default"
)

// kubernetes is the version that the cluster would have: the one whose code judges.
var kubernetes = newest

const newest = "v1.34.4"

// source is the files of a chart, by their names in it.
type source map[string]string

func readSource(folder string) (source, error) {
	files := source{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files[name] = string(content)
		return err
	})
	return files, err
}

// document is an object as it was rendered: its text, its fields, and what a cluster makes of it.
type document struct {
	text   string
	fields map[string]any
	typed  runtime.Object
}

type rendered struct {
	values    map[string]any
	documents []document
	notes     string
}

// render does what `helm template` does.
func (source source) render(given string) (*rendered, error) {
	var files []*loader.BufferedFile
	for name, text := range source {
		if !strings.HasPrefix(name, "examples/") {
			files = append(files, &loader.BufferedFile{Name: name, Data: []byte(text)})
		}
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(given), &values); err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: kubernetes}
	if wanted := chart.Metadata.KubeVersion; !chartutil.IsCompatibleRange(wanted, kubernetes) {
		return nil, fmt.Errorf("chart requires kubeVersion %s, and this is %s", wanted, kubernetes)
	}
	options := chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	result := &rendered{values: all["Values"].(chartutil.Values)}
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if strings.HasSuffix(name, "NOTES.txt") {
			result.notes = texts[name]
			continue
		}
		documents, err := decode(texts[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result.documents = append(result.documents, documents...)
	}
	return result, nil
}

// Objects with fields that there are not, or twice, are refused.
var codecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

// decode reads objects as a cluster does that is told `--validate=strict`, and has it judge them.
func decode(text string) ([]document, error) {
	var documents []document
	for _, part := range strings.Split("\n"+text, "\n---") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		typed, _, err := codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
		if err != nil {
			return nil, err
		}
		internal, _, err := codecs.UniversalDecoder().Decode([]byte(part), nil, nil)
		if err != nil {
			return nil, err
		}
		if problems := validate(internal); len(problems) > 0 {
			return nil, problems.ToAggregate()
		}
		fields := map[string]any{}
		if err := yaml.Unmarshal([]byte(part), &fields); err != nil {
			return nil, err
		}
		documents = append(documents, document{part, fields, typed})
	}
	return documents, nil
}

// validate is what the API server does before it stores an object of these kinds.
func validate(object runtime.Object) field.ErrorList {
	switch object := object.(type) {
	case *apps.StatefulSet:
		object.Namespace = namespace
		options := pod.GetValidationOptionsFromPodTemplate(&object.Spec.Template, nil)
		return appsvalidation.ValidateStatefulSet(object, options)
	case *apps.DaemonSet:
		object.Namespace = namespace
		options := pod.GetValidationOptionsFromPodTemplate(&object.Spec.Template, nil)
		return appsvalidation.ValidateDaemonSet(object, options)
	case *apps.Deployment:
		object.Namespace = namespace
		options := pod.GetValidationOptionsFromPodTemplate(&object.Spec.Template, nil)
		return appsvalidation.ValidateDeployment(object, options)
	case *core.Service:
		return corevalidation.ValidateServiceCreate(object)
	}
	kind := object.GetObjectKind().GroupVersionKind()
	return field.ErrorList{field.InternalError(nil, errors.New("nobody judges a "+kind.String()))}
}

// lint is `helm lint --strict`: a chart has no icon, and that is all helm may say.
func lint(folder string) (problems []string) {
	for _, message := range helmlint.All(folder, nil, namespace, true).Messages {
		if message.Severity > support.InfoSev || !strings.Contains(message.Error(), "icon is recommended") {
			problems = append(problems, message.Error())
		}
	}
	return problems
}
