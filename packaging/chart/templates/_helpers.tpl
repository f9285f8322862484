{{/* The beginning of all names. */}}
{{- define "kelix.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "kelix" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-kelix" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "kelix.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What a selector names: it never changes, so versions are not among it. */}}
{{- define "kelix.selector" -}}
app.kubernetes.io/name: kelix
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kelix.labels" -}}
{{ include "kelix.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The name that the primary's certificate has to be for. It leads there from all namespaces. */}}
{{- define "kelix.primaryHost" -}}
{{ include "kelix.fullname" . }}-primary.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "kelix.mirrorOf" -}}
{{- .Values.mirror.of | default (printf "%s:%v" (include "kelix.primaryHost" .) .Values.primary.port) -}}
{{- end -}}

{{/* A size of kelix's, in MiB: M, G and T are powers of 1024 there. */}}
{{- define "kelix.mib" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "T" . -}}{{ mul $number 1048576 }}
{{- else if hasSuffix "G" . -}}{{ mul $number 1024 }}
{{- else -}}{{ $number }}
{{- end -}}
{{- end -}}

{{/*
What a server takes that has so many images of this size at most: beside them an eighth for segments that are
being emptied and what is trained, and 512 MiB for clients, buffers and the program.
*/}}
{{- define "kelix.limit" -}}
{{- $mib := include "kelix.mib" .memory | int64 -}}
{{ add (mul $mib .images) (div $mib 8) 512 }}Mi
{{- end -}}

{{/* Half of what a mirror may have that is derived so. */}}
{{- define "kelix.half" -}}
{{- $mib := include "kelix.mib" . | int64 -}}
{{ div (add (mul $mib 2) (div $mib 8) 512) 2 }}M
{{- end -}}

{{/* What containers may do: what any process may, and write no file outside the volumes. */}}
{{- define "kelix.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "kelix.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user.uid }}
runAsGroup: {{ .Values.user.gid }}
# So that the files of Secrets, and the claim, can be read; directories of the node it does not change.
fsGroup: {{ .Values.user.gid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Where pods go, and what of the cluster they are given. */}}
{{- define "kelix.placing" -}}
# Variables about Services would begin with KELIX_, as the program's options do.
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Started: the server answers, for which it may read a log or copy a store first. Ready: the same, each few
seconds. Alive: a shard answers; names of tables end with one that is absent, which is asked of the shard.
*/}}
{{- define "kelix.probes" -}}
startupProbe:
  exec:
    command: [kelix, --dir, {{ .dir }}, --timeout, 4s, stat, --json]
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div (add .seconds 4) 5 }}
readinessProbe:
  exec:
    command: [kelix, --dir, {{ .dir }}, --timeout, 4s, stat, --json]
  periodSeconds: 10
  timeoutSeconds: 5
livenessProbe:
  exec:
    command: [kelix, --dir, {{ .dir }}, --timeout, 8s, {{ .alive }}]
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 3
{{- end -}}

{{/* What no schema can say, since it is about several values. */}}
{{- define "kelix.check" -}}
{{- if not (or .Values.primary.enabled .Values.mirror.enabled) -}}
{{- fail "nothing is to be installed: primary.enabled and mirror.enabled are both false" -}}
{{- end -}}
{{- if and .Values.mirror.enabled (not .Values.primary.enabled) -}}
{{- if not .Values.mirror.of -}}
{{- fail "mirror.of: without a primary (primary.enabled) say which server is followed, as HOST:PORT" -}}
{{- end -}}
{{- if not .Values.mirror.memory -}}
{{- fail "mirror.memory: without a primary (primary.enabled) say how much memory the one followed has" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.mirror.enabled .Values.mirror.copyRate -}}
{{- $mib := include "kelix.mib" (.Values.mirror.memory | default .Values.primary.memory) | int64 -}}
{{- $seconds := div $mib (include "kelix.mib" .Values.mirror.copyRate | int64) -}}
{{- if gt $seconds (.Values.mirror.startupSeconds | int64) -}}
{{- printf "mirror.startupSeconds: a full copy at mirror.copyRate takes %d s, so a mirror would be %s"
    $seconds "started anew before it has one: give it more" | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
