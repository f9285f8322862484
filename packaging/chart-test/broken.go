package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type values struct{ name, values string }

// What people install.
var valueSets = []values{
	{"nothing said", ""},
	{"everything said", `
image: {repository: registry.example/kelix, tag: v1, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
fullnameOverride: kelix
user: {uid: 1234, gid: 1235}
log: debug
primary:
  memory: 64G
  shards: 4
  durable: commit
  port: 7200
  extraArgs: [--cache, --log, info]
  tls: {secret: other-tls}
  tokens: {secret: other-tokens, key: words}
  metrics: {enabled: true, port: 9200}
  storage: {size: 500Gi, storageClass: fast, accessModes: [ReadWriteOncePod]}
  resources: {requests: {cpu: 4}, limits: {memory: 100Gi}}
  startupSeconds: 3600
  podAnnotations: {prometheus.io/scrape: "true"}
  nodeSelector: {disk: fast}
  tolerations: [{key: dedicated, operator: Equal, value: kelix, effect: NoSchedule}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]
  priorityClassName: high
  extraVolumes: [{name: namespaces, configMap: {name: namespaces}}]
  extraVolumeMounts: [{name: namespaces, mountPath: /etc/kelix-namespaces, readOnly: true}]
mirror:
  hostPath: /var/lib/shared/kelix
  copyRate: 100M
  maxLag: 5s
  metrics: {enabled: false}
  resources: {requests: {cpu: 1, memory: 70Gi}, limits: {memory: 140Gi}}
  ca: {configMap: bundle, key: trust.pem}
  token: {secret: other-mirror, key: word}
  maxUnavailable: 10%
  tolerations: [{operator: Exists}]
  nodeSelector: {readers: "yes"}
  priorityClassName: system-node-critical
`},
	{"mirrors of a server elsewhere", `
primary: {enabled: false}
mirror: {of: "store.example:7117", memory: 4G}
`},
	{"a primary alone, on a claim that is there", `
mirror: {enabled: false}
primary: {storage: {existingClaim: kept}, metrics: {enabled: false}}
`},
	{"directories that the nodes come with", "mirror: {prepareHostPath: false}"},
}

type refusal struct{ name, values, said string }

// Values that are refused, and what has to be said of them.
var badValues = []refusal{
	{"a value that there is not", "primary: {memmory: 2G}", "additional properties 'memmory' not allowed"},
	{"a size of Kubernetes'", "primary: {memory: 2Gi}", "at '/primary/memory': '2Gi' does not match pattern"},
	{"no memory", "primary: {memory: 0G}", "at '/primary/memory'"},
	{"too many shards", "primary: {shards: 65}", "at '/primary/shards': maximum: got 65, want 64"},
	{"a word for a number", "primary: {shards: many}", "at '/primary/shards': got string, want integer"},
	{"writes that are not logged", "primary: {durable: off}", "at '/primary/durable'"},
	{"a port of root's", "primary: {port: 711}", "at '/primary/port': minimum: got 711, want 1,024"},
	{
		"options in one word", "primary: {extraArgs: --cache}",
		"at '/primary/extraArgs': got string, want array",
	},
	{
		"a claim that many may write", "primary: {storage: {accessModes: [ReadWriteMany]}}",
		"at '/primary/storage/accessModes/0'",
	},
	{"no Secret", "primary: {tls: {secret: ''}}", "at '/primary/tls/secret'"},
	{"servers of root's", "user: {uid: 0}", "at '/user/uid': minimum: got 0, want 1"},
	{
		"shared memory of the node", "mirror: {hostPath: /dev/shm/kelix}",
		"at '/mirror/hostPath': 'not' failed",
	},
	{"a directory of the system's", "mirror: {hostPath: /etc}", "at '/mirror/hostPath': 'not' failed"},
	{"a way up", "mirror: {hostPath: /run/kelix/../systemd}", "at '/mirror/hostPath': 'not' failed"},
	{"a directory of none", "mirror: {hostPath: run/kelix}", "at '/mirror/hostPath'"},
	{
		"an address without a port", "mirror: {of: store.example}",
		"at '/mirror/of': 'store.example' does not match pattern",
	},
	{"a time without a unit", "mirror: {maxLag: '5'}", "at '/mirror/maxLag': '5' does not match pattern"},
	{
		"a rate without a unit", "mirror: {copyRate: '100'}",
		"at '/mirror/copyRate': '100' does not match pattern",
	},
	{
		"nothing to install", "{primary: {enabled: false}, mirror: {enabled: false}}",
		"primary.enabled and mirror.enabled are both false",
	},
	{"mirrors of nobody", "primary: {enabled: false}", "mirror.of: without a primary"},
	{
		"mirrors of who knows how much", "{primary: {enabled: false}, mirror: {of: 'a:1'}}",
		"mirror.memory: without a primary",
	},
	{
		"a copy that is never whole", "{primary: {memory: 1T}, mirror: {copyRate: 10M}}",
		"mirror.startupSeconds: a full copy at mirror.copyRate takes 104857 s",
	},
	{"a cluster that is too old", "KUBERNETES v1.20.0", "chart requires kubeVersion"},
}

type breach struct{ name, file, old, new, values, said string }

// Charts that are broken in one place: what is replaced in a file, with which values, and what is to be said.
var brokenCharts = []breach{
	{
		"a field that there is not", "templates/primary.yaml", "replicas:", "replica:", "",
		`unknown field "spec.replica"`,
	},
	{
		"a field that is there twice", "templates/primary.yaml", "  replicas: 1",
		"  replicas: 1\n  replicas: 1", "", "already set",
	},
	{
		"what the API server refuses", "templates/mirror.yaml", "- name: run\n              mountPath",
		"- name: gone\n              mountPath", "",
		"spec.template.spec.containers[0].volumeMounts[0].name: Not found",
	},
	{
		"an option that serve has not", "templates/mirror.yaml", "--mirror-of", "--mirror-off", "",
		"kelix has no --mirror-off",
	},
	{
		"an option of another command", "templates/primary.yaml", "- --no-pin",
		"- --no-pin\n            - --watch", "", "kelix serve has no --watch",
	},
	{
		"an option without its value", "templates/mirror.yaml", "            - /etc/kelix/ca.crt\n", "", "",
		"--tls-ca has no value",
	},
	{
		"a value too many", "templates/primary.yaml", "- --no-pin", "- --no-pin\n            - twice", "",
		"the chart is not known to use `kelix serve twice`",
	},
	{
		"options that are said wrongly", "values.yaml", "extraArgs: []", "extraArgs: [--nowhere]", "",
		"kelix has no --nowhere",
	},
	{
		"a command that there is not", "templates/_helpers.tpl", "stat, --json", "ping", "",
		"the chart is not known to use `kelix ping`",
	},
	{
		"a mirror of somebody else", "templates/_helpers.tpl", ".Values.mirror.of | default",
		"\"\" | default", "mirror: {of: 'a.example:1'}", "the mirror has --mirror-of",
	},
	{
		"a mirror whose options are left out", "templates/mirror.yaml",
		"- --max-lag\n            - {{ . | quote }}", "", "mirror: {maxLag: 5s}",
		"the mirror has --max-lag",
	},
	{
		"a mirror that is a primary", "templates/mirror.yaml", "- --dir\n",
		"- --shards\n            - \"2\"\n            - --dir\n", "",
		"the mirror has --shards, which is a primary's",
	},
	{
		"two mirrors at once", "templates/mirror.yaml", "maxUnavailable: {{ $mirror.maxUnavailable }}",
		"{maxSurge: 1, maxUnavailable: 0}", "", "two mirrors would want one directory",
	},
	{
		"two primaries", "templates/primary.yaml", "replicas: 1", "replicas: 2", "",
		"2 servers would have one store",
	},
	{
		"a log that goes with the pod", "templates/primary.yaml", "/var/lib/kelix/store", "/run/kelix/log",
		"", "the log, in /run/kelix/log, is on no claim",
	},
	{
		"a log on the image's file system", "templates/primary.yaml", "/var/lib/kelix/store", "/srv/store",
		"", "--wal /srv/store is on no volume",
	},
	{
		"a primary without TLS", "templates/primary.yaml",
		"- --tls-key\n            - /etc/kelix/tls.key\n", "", "", "the primary has no --tls-key",
	},
	{
		"a primary that nobody reaches", "templates/primary.yaml", "- 0.0.0.0:{{ $primary.port }}",
		"- 127.0.0.1:{{ $primary.port }}", "", "the primary listens at",
	},
	{
		"a service of the mirrors", "templates/primary.yaml",
		"spec:\n  selector: {{ include \"kelix.selector\" $about",
		"spec:\n  selector: {{ include \"kelix.selector\" (dict \"root\" . \"component\" \"mirror\")", "",
		"the service does not lead to the primary",
	},
	{
		"a service without its port", "templates/primary.yaml", "targetPort: kelix", "targetPort: none", "",
		"the service leads to none",
	},
	{
		"a run directory that all may write", "templates/primary.yaml",
		"/run/kelix/server\n            - --memory", "/run/kelix\n            - --memory", "",
		"/run/kelix is open for all to write",
	},
	{
		"a file that is not there", "templates/mirror.yaml", "path: ca.crt", "path: ca.pem", "",
		"there is no file for --tls-ca /etc/kelix/ca.crt",
	},
	{
		"the node's memory for IPC", "templates/mirror.yaml", "      volumes:",
		"      hostIPC: true\n      volumes:", "", "hostIPC is used",
	},
	{
		"the node's network", "templates/primary.yaml", "      volumes:",
		"      hostNetwork: true\n      volumes:", "", "hostNetwork is used",
	},
	{
		"the node's processes", "templates/primary.yaml", "      volumes:",
		"      hostPID: true\n      volumes:", "", "hostPID is used",
	},
	{
		"a privileged mirror", "templates/_helpers.tpl", "allowPrivilegeEscalation: false\n",
		"privileged: true\n", "", "securityContext.privileged: Forbidden",
	},
	{
		"the node's shared memory", "templates/mirror.yaml", "path: {{ $mirror.hostPath }}",
		"path: /dev/shm", "", "/dev/shm is used",
	},
	{
		"another directory of the node", "templates/mirror.yaml", "path: {{ $mirror.hostPath }}",
		"path: /var/lib", "", "the mirror has /var/lib of the node",
	},
	{
		"a primary on the node's disk", "templates/primary.yaml", "emptyDir: {}", "hostPath: {path: /srv}",
		"", "the primary has /srv of the node",
	},
	{
		"a volume in memory", "templates/primary.yaml", "emptyDir: {}", "emptyDir: {medium: Memory}", "",
		"medium: is used",
	},
	{
		"a process that may become another", "templates/_helpers.tpl", "allowPrivilegeEscalation: false\n",
		"", "", "allowPrivilegeEscalation != false",
	},
	{
		"capabilities that stay", "templates/_helpers.tpl", "drop: [ALL]", "drop: [CHOWN]", "",
		"unrestricted capabilities",
	},
	{
		"system calls that nobody needs", "templates/_helpers.tpl", "type: RuntimeDefault",
		"type: Unconfined", "", "seccompProfile",
	},
	{"root", "templates/_helpers.tpl", "runAsNonRoot: true\n", "", "", "runAsNonRoot != true"},
	{
		"an image that can be written", "templates/_helpers.tpl", "readOnlyRootFilesystem: true",
		"readOnlyRootFilesystem: false", "", "its file system can be written",
	},
	{
		"an init container that may do more", "templates/mirror.yaml", "add: [CHOWN, FOWNER]",
		"add: [SYS_ADMIN]", "", "user 0 with [SYS_ADMIN]",
	},
	{
		"a directory that stays root's", "templates/mirror.yaml",
		"chown {{ .Values.user.uid }}:{{ .Values.user.gid }}", "chown 1:1", "",
		`no "chown 7117:7117 /run/kelix"`,
	},
	{
		"variables of services", "templates/_helpers.tpl", "enableServiceLinks: false",
		"enableServiceLinks: true", "", "is given variables that name services",
	},
	{
		"a token of the cluster's", "templates/_helpers.tpl", "automountServiceAccountToken: false\n", "",
		"", "is given a token of the cluster's",
	},
	{
		"memory for one image of two", "templates/mirror.yaml", "\"images\" 2", "\"images\" 1", "",
		"and needs room for 2 images of 1G",
	},
	{
		"a mirror that may have too little", "templates/mirror.yaml", "include \"kelix.half\" $memory",
		"$memory", "", "the mirror may have 1G, of a primary with 1G",
	},
	{
		"a mirror that may have too much", "templates/_helpers.tpl",
		"div (add (mul $mib 2) (div $mib 8) 512) 2", "mul $mib 2", "", "the mirror may have 2048M",
	},
	{
		"a mirror that does not wait", "templates/mirror.yaml",
		"            - --retry\n            - {{ $mirror.startupSeconds }}s\n", "", "",
		"the mirror waits for \"\"",
	},
	{
		"a promise that is too small", "values.yaml", "    requests:\n      cpu: \"1\"",
		"    requests:\n      memory: 512Mi", "", "the primary is promised 536870912 bytes",
	},
	{
		"a limit that is too small", "values.yaml", "    requests:\n      cpu: 250m",
		"    requests:\n      memory: 1Gi\n    limits:\n      memory: 1280Mi", "",
		"the mirror may take 1342177280 bytes",
	},
	{
		"a limit of CPU", "values.yaml", "    requests:\n      cpu: 250m", "    limits:\n      cpu: 1", "",
		"the mirror has a limit of CPU",
	},
	{
		"memory without a limit", "templates/mirror.yaml", "            limits: {memory: 16Mi}\n", "", "",
		"the mirror, directory: memory has no limit",
	},
	{
		"a probe that is not of kelix", "templates/_helpers.tpl", "livenessProbe:\n  exec:",
		"livenessProbe:\n  tcpSocket: {port: 7117}\nother:\n  exec:", "",
		`unknown field "spec.template.spec.containers[0].other"`,
	},
	{
		"a probe that is asked over TCP", "templates/_helpers.tpl",
		"livenessProbe:\n  exec:\n    command: [kelix, --dir, {{ .dir }}, --timeout, 8s, {{ .alive }}]",
		"livenessProbe:\n  tcpSocket: {port: 7117}", "", "its liveness is not asked of kelix",
	},
	{
		"a probe of another directory", "templates/primary.yaml", `dict "dir" "/run/kelix/server"`,
		`dict "dir" "/run/kelix"`, "", "its startup is asked by",
	},
	{
		"a probe that is cut off", "templates/_helpers.tpl", "--timeout, 8s", "--timeout, 30s", "",
		"its liveness gives \"30s\" and has 10 s",
	},
	{
		"a mirror that lags and is started anew", "templates/mirror.yaml", `"stat, --json" "table, list"`,
		`"table, list" "table, list"`, "mirror: {maxLag: 5s}", "its liveness is asked by",
	},
	{
		"notes that leave something out", "templates/NOTES.txt", "{{ .Values.mirror.hostPath }}",
		"/run/kelix", "mirror: {hostPath: /srv/kelix}", "the notes do not tell mirror.hostPath",
	},
	{
		"a primary that is there all the same", "templates/primary.yaml", "if .Values.primary.enabled",
		"if true", "{primary: {enabled: false}, mirror: {of: 'a:1', memory: 1G}}",
		"but a primary: true",
	},
	{
		"a mirror that is there all the same", "templates/mirror.yaml", "if .Values.mirror.enabled",
		"if true", "mirror: {enabled: false}", "there is a mirror: true",
	},
	{
		"an example without the group", "examples/application.yaml", "supplementalGroups: [7117]",
		"supplementalGroups: [1]", "", "the example has not the mirror's group",
	},
	{
		"an example that may write the directory", "examples/application.yaml",
		"mountPath: /run/kelix\n              readOnly: true", "mountPath: /run/kelix", "",
		"the example mounts /run/kelix, readOnly: false",
	},
	{
		"an example that is the mirror's user", "examples/application.yaml", "runAsUser: 20000",
		"runAsUser: 7117", "", "the example is the mirror's user",
	},
}

// refused says whether values are refused with the right words.
func refused(source source, bad refusal) []string {
	given := bad.values
	if strings.HasPrefix(given, "KUBERNETES ") {
		given, kubernetes = "", strings.TrimPrefix(given, "KUBERNETES ")
		defer func() { kubernetes = newest }()
	}
	_, err := source.render(given)
	if err == nil || !strings.Contains(err.Error(), bad.said) {
		return []string{fmt.Sprintf("%q was not said, but: %v", bad.said, err)}
	}
	return nil
}

// noticed says whether what is wrong with a chart is found.
func noticed(whole source, broken breach, known program) []string {
	text := whole[broken.file]
	if !strings.Contains(text, broken.old) {
		return []string{fmt.Sprintf("%s has no %q to break", broken.file, broken.old)}
	}
	part := source{}
	for name, text := range whole {
		part[name] = text
	}
	part[broken.file] = strings.ReplaceAll(text, broken.old, broken.new)
	problems := judge(part, broken.values, known)
	for _, problem := range problems {
		if strings.Contains(problem, broken.said) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%q was not said, but: %q", broken.said, problems)}
}

// lintNotices says whether helm finds a version that is none.
func lintNotices(whole source) []string {
	folder, err := os.MkdirTemp("", "kelix-chart-")
	if err != nil {
		return []string{err.Error()}
	}
	defer os.RemoveAll(folder)
	for name, text := range whole {
		if name == "Chart.yaml" {
			text = strings.Replace(text, "\nversion: ", "\nversion: none", 1)
		}
		at := filepath.Join(folder, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err := errors.Join(err, os.WriteFile(at, []byte(text), 0o644)); err != nil {
			return []string{err.Error()}
		}
	}
	if problems := lint(folder); !strings.Contains(strings.Join(problems, " "), "is not a valid SemVer") {
		return []string{fmt.Sprintf("lint says: %q", problems)}
	}
	return nil
}
