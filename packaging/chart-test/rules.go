package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const mebibyte = 1 << 20

// What shared memory does not take, since it is handed over as descriptors through a Unix socket.
var neverUsed = []string{"/dev/shm", "hostIPC", "hostNetwork", "hostPID", "privileged", "medium:"}

// What every primary is started with.
var ofPrimary = []string{"--wal", "--memory", "--shards", "--tls-cert", "--tls-key", "--tokens", "--no-pin"}

// judge renders a chart and says what is wrong with it.
func judge(source source, values string, known program) []string {
	rendered, err := source.render(values)
	if err != nil {
		return []string{err.Error()}
	}
	found := &findings{rendered: rendered, known: known}
	var service *corev1.Service
	var primary *appsv1.StatefulSet
	var mirror *appsv1.DaemonSet
	for _, document := range rendered.documents {
		for _, never := range neverUsed {
			if strings.Contains(document.text, never) {
				found.say("%s is used", never)
			}
		}
		switch object := document.typed.(type) {
		case *corev1.Service:
			service = object
		case *appsv1.StatefulSet:
			primary = object
		case *appsv1.DaemonSet:
			mirror = object
		default:
			found.say("an object that nobody expects: %T", object)
		}
	}
	if found.value("primary", "enabled") != (primary != nil) || (service != nil) != (primary != nil) {
		found.say("primary.enabled, but a primary: %v, a service: %v", primary != nil, service != nil)
	}
	if found.value("mirror", "enabled") != (mirror != nil) {
		found.say("mirror.enabled, but there is a mirror: %v", mirror != nil)
	}
	if primary != nil && service != nil {
		found.primary(primary, service)
	}
	if mirror != nil {
		found.mirror(mirror)
		found.application(source["examples/application.yaml"], mirror)
	}
	return found.problems
}

type findings struct {
	rendered *rendered
	known    program
	problems []string
}

func (found *findings) say(format string, arguments ...any) {
	found.problems = append(found.problems, fmt.Sprintf(format, arguments...))
}

// value is one of the chart's.
func (found *findings) value(names ...string) any {
	var value any = found.rendered.values
	for _, name := range names {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[name]
		default:
			return nil
		}
	}
	return value
}

func (found *findings) text(names ...string) string {
	if value := found.value(names...); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

func (found *findings) primary(primary *appsv1.StatefulSet, service *corev1.Service) {
	template := primary.Spec.Template
	found.pod("the primary", &template)
	options := found.server("the primary", &template)
	for _, option := range ofPrimary {
		if _, is := options[option]; !is {
			found.say("the primary has no %s", option)
		}
	}
	if *primary.Spec.Replicas != 1 {
		found.say("%d servers would have one store", *primary.Spec.Replicas)
	}
	listens := "0.0.0.0:" + found.text("primary", "port")
	if options["--listen"] != listens {
		found.say("the primary listens at %q, not at %s", options["--listen"], listens)
	}
	if options["--memory"] != found.text("primary", "memory") {
		found.say("the primary has --memory %s", options["--memory"])
	}
	for _, port := range service.Spec.Ports {
		if !slices.ContainsFunc(template.Spec.Containers[0].Ports, func(at corev1.ContainerPort) bool {
			return at.Name == port.TargetPort.StrVal && at.ContainerPort == port.Port
		}) {
			found.say("the service leads to %s, which no container has", port.TargetPort.String())
		}
	}
	if !selects(service.Spec.Selector, template.Labels) || primary.Spec.ServiceName != service.Name {
		found.say("the service does not lead to the primary")
	}
	// Else what the server writes goes with the container.
	store := mountOf(&template.Spec, options["--wal"])
	claimed := false
	for _, claim := range primary.Spec.VolumeClaimTemplates {
		claimed = claimed || claim.Name == store
	}
	claimed = claimed || slices.ContainsFunc(template.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Name == store && volume.PersistentVolumeClaim != nil
	})
	if !claimed {
		found.say("the log, in %s, is on no claim", options["--wal"])
	}
	found.limit("the primary", &template, found.text("primary", "memory"), 1)
}

func (found *findings) mirror(mirror *appsv1.DaemonSet) {
	template := mirror.Spec.Template
	found.pod("the mirror", &template)
	options := found.server("the mirror", &template)
	of := found.text("mirror", "of")
	if of == "" {
		of = fmt.Sprintf("%s-primary.%s.svc:%s", releaseName, namespace, found.text("primary", "port"))
	}
	wanted := map[string]string{
		"--dir": "/run/kelix", "--mirror-of": of,
		"--tls-ca": "/etc/kelix/ca.crt", "--token-file": "/etc/kelix/token",
		"--copy-rate": found.text("mirror", "copyRate"), "--max-lag": found.text("mirror", "maxLag"),
	}
	for option, value := range wanted {
		if options[option] != value {
			found.say("the mirror has %s %q, not %q", option, options[option], value)
		}
	}
	for _, option := range []string{"--listen", "--wal", "--snapshots", "--shards"} {
		if _, is := options[option]; is {
			found.say("the mirror has %s, which is a primary's", option)
		}
	}
	if surge := mirror.Spec.UpdateStrategy.RollingUpdate.MaxSurge; surge != nil && surge.String() != "0" {
		found.say("two mirrors would want one directory: maxSurge %s", surge)
	}
	memory := found.text("mirror", "memory")
	if memory == "" {
		memory = found.text("primary", "memory")
	}
	found.limit("the mirror", &template, memory, 2)
	// It may have as much as the primary, and twice that has room in the pod unless somebody says otherwise.
	own := bytesOf(options["--memory"])
	room := template.Spec.Containers[0].Resources.Limits.Memory().Value()
	if own < bytesOf(memory)*17/16 || found.value("mirror", "resources", "limits") == nil && 2*own > room {
		found.say("the mirror may have %s, of a primary with %s", options["--memory"], memory)
	}
	if options["--retry"] != found.text("mirror", "startupSeconds")+"s" {
		found.say("the mirror waits for %q", options["--retry"])
	}
	for _, name := range []string{"hostPath", "of"} {
		if !strings.Contains(found.rendered.notes, found.text("mirror", name)) {
			found.say("the notes do not tell mirror.%s", name)
		}
	}
}

// application compares the example with the mirror that it reads.
func (found *findings) application(text string, mirror *appsv1.DaemonSet) {
	documents, err := decode(text)
	if err != nil || len(documents) != 1 {
		found.say("the example: %d objects, %v", len(documents), err)
		return
	}
	application, is := documents[0].typed.(*appsv1.Deployment)
	if !is {
		found.say("the example is a %T", documents[0].typed)
		return
	}
	template := application.Spec.Template
	found.pod("the example", &template)
	group := *mirror.Spec.Template.Spec.SecurityContext.RunAsGroup
	groups := template.Spec.SecurityContext.SupplementalGroups
	if found.text("user", "gid") == "7117" && !slices.Contains(groups, group) {
		found.say("the example has not the mirror's group, %d", group)
	}
	if *template.Spec.SecurityContext.RunAsUser == *mirror.Spec.Template.Spec.SecurityContext.RunAsUser {
		found.say("the example is the mirror's user, and could do anything to it")
	}
	run := template.Spec.Containers[0].VolumeMounts[0]
	if !run.ReadOnly || run.MountPath != "/run/kelix" {
		found.say("the example mounts %s, readOnly: %v", run.MountPath, run.ReadOnly)
	}
}

// pod looks at what holds for every pod. A directory of the node, and an init container of root's, are looked
// at here; without these two, Kubernetes' own policy is asked.
func (found *findings) pod(who string, template *corev1.PodTemplateSpec) {
	spec := template.Spec.DeepCopy()
	if links := spec.EnableServiceLinks; links == nil || *links {
		found.say("%s is given variables that name services", who)
	}
	if token := spec.AutomountServiceAccountToken; token == nil || *token {
		found.say("%s is given a token of the cluster's", who)
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		if _, is := container.Resources.Limits[corev1.ResourceMemory]; !is {
			found.say("%s, %s: memory has no limit", who, container.Name)
		}
		if readOnly := container.SecurityContext.ReadOnlyRootFilesystem; readOnly == nil || !*readOnly {
			found.say("%s, %s: its file system can be written", who, container.Name)
		}
	}
	for i, volume := range spec.Volumes {
		if volume.HostPath != nil {
			expected := found.text("mirror", "hostPath")
			if who == "the example" {
				expected = "/run/kelix"
			}
			if who == "the primary" || volume.HostPath.Path != expected {
				found.say("%s has %s of the node", who, volume.HostPath.Path)
			}
			spec.Volumes[i].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
	for _, container := range spec.InitContainers {
		user, added := *container.SecurityContext.RunAsUser, container.SecurityContext.Capabilities.Add
		if user != 0 || !slices.Equal(added, []corev1.Capability{"CHOWN", "FOWNER"}) {
			found.say("%s, %s: user %d with %v", who, container.Name, user, added)
		}
		wanted := fmt.Sprintf("chown %s:%s /run/kelix", found.text("user", "uid"), found.text("user", "gid"))
		if !strings.Contains(strings.Join(container.Command, " "), wanted) {
			found.say("%s, %s: no %q", who, container.Name, wanted)
		}
	}
	spec.InitContainers = nil
	checks, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		found.say("%v", err)
		return
	}
	meta := metav1.ObjectMeta{Labels: template.Labels}
	strict := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for _, result := range checks.EvaluatePod(strict, &meta, spec) {
		if !result.Allowed {
			found.say("%s is not restricted: %s (%s)", who, result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}

// server reads the commands of a server's container, and returns its options.
func (found *findings) server(who string, template *corev1.PodTemplateSpec) map[string]string {
	container := template.Spec.Containers[0]
	if !slices.Equal(container.Command, []string{"kelix"}) {
		found.say("%s starts %v", who, container.Command)
	}
	command, options, err := found.known.read(container.Args)
	if err != nil || command != "serve" {
		found.say("%s starts %q: %v", who, command, err)
		return nil
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": container.StartupProbe, "readiness": container.ReadinessProbe,
		"liveness": container.LivenessProbe,
	} {
		if probe == nil || probe.Exec == nil || probe.Exec.Command[0] != "kelix" {
			found.say("%s: its %s is not asked of kelix", who, name)
			continue
		}
		command, given, err := found.known.read(probe.Exec.Command[1:])
		wanted := "stat"
		// A mirror that may be read no more for a while would be started anew in vain.
		if _, lags := options["--max-lag"]; name == "liveness" && !lags {
			wanted = "table list"
		}
		if err != nil || command != wanted || given["--dir"] != options["--dir"] {
			found.say("%s: its %s is asked by %v: %v", who, name, probe.Exec.Command, err)
		}
		seconds := regexp.MustCompile(`^(\d+)s$`).FindStringSubmatch(given["--timeout"])
		if seconds == nil || len(seconds[1]) > 1 || int32(seconds[1][0]-'0') >= probe.TimeoutSeconds {
			found.say("%s: its %s gives %q and has %d s", who, name, given["--timeout"], probe.TimeoutSeconds)
		}
	}
	for _, option := range []string{"--tls-ca", "--tls-cert", "--tls-key", "--token-file", "--tokens"} {
		if file, is := options[option]; is && !slices.Contains(filesOf(&template.Spec), file) {
			found.say("%s: there is no file for %s %s", who, option, file)
		}
	}
	for _, option := range []string{"--dir", "--wal"} {
		if place, is := options[option]; is && mountOf(&template.Spec, place) == "" {
			found.say("%s: %s %s is on no volume", who, option, place)
		}
	}
	// A volume of its own is open for all to write, so the server takes none but a directory below.
	if run := mountOf(&template.Spec, options["--dir"]); run != "" {
		for _, volume := range template.Spec.Volumes {
			if volume.Name == run && volume.EmptyDir != nil && slices.ContainsFunc(container.VolumeMounts,
				func(mount corev1.VolumeMount) bool { return mount.MountPath == options["--dir"] }) {
				found.say("%s: %s is open for all to write", who, options["--dir"])
			}
		}
	}
	return options
}

// bytesOf reads a size as kelix does; 0 if it is none.
func bytesOf(size string) (number int64) {
	if size == "" {
		return 0
	}
	last := len(size) - 1
	if _, err := fmt.Sscan(size[:last], &number); err != nil {
		return 0
	}
	return number * map[byte]int64{'M': 1, 'G': 1 << 10, 'T': 1 << 20}[size[last]] * mebibyte
}

// limit compares the memory of a pod with what its images take.
func (found *findings) limit(who string, template *corev1.PodTemplateSpec, memory string, images int64) {
	resources := template.Spec.Containers[0].Resources
	least := bytesOf(memory)
	if limit := resources.Limits.Memory().Value(); limit < images*least+256*mebibyte {
		found.say("%s may take %d bytes, and needs room for %d images of %s", who, limit, images, memory)
	}
	if request := resources.Requests.Memory().Value(); request < least {
		found.say("%s is promised %d bytes, and has an image of %s", who, request, memory)
	}
	if _, is := resources.Limits[corev1.ResourceCPU]; is {
		found.say("%s has a limit of CPU", who)
	}
}

// mountOf is the volume that a place in the first container is on.
func mountOf(spec *corev1.PodSpec, place string) string {
	for _, mount := range spec.Containers[0].VolumeMounts {
		if place == mount.MountPath || strings.HasPrefix(place, mount.MountPath+"/") {
			return mount.Name
		}
	}
	return ""
}

// filesOf is the files that projected volumes put into the first container.
func filesOf(spec *corev1.PodSpec) (files []string) {
	for _, mount := range spec.Containers[0].VolumeMounts {
		for _, volume := range spec.Volumes {
			if volume.Name != mount.Name || volume.Projected == nil {
				continue
			}
			for _, source := range volume.Projected.Sources {
				var items []corev1.KeyToPath
				if source.Secret != nil {
					items = source.Secret.Items
				} else if source.ConfigMap != nil {
					items = source.ConfigMap.Items
				}
				for _, item := range items {
					files = append(files, path.Join(mount.MountPath, item.Path))
				}
			}
		}
	}
	return files
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}
